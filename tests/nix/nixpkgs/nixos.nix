# lib.nixosSystem with the options that kli's module touches; `system.build.toplevel` holds `sw/bin`
# and `etc`, and is refused while an assertion fails, as on NixOS.
{ lib, legacyPackages }:
{ system, modules }:
let
  pkgs = legacyPackages.${system};
  inherit (lib) mkOption types;
  bool =
    default:
    mkOption {
      type = types.bool;
      inherit default;
    };
  evaluated = lib.evalModules {
    specialArgs = { inherit pkgs; };
    modules = [
      {
        options = {
          environment = {
            systemPackages = mkOption {
              type = types.listOf types.package;
              default = [ ];
            };
            etc = mkOption {
              type = types.attrsOf (types.submodule { options.source = mkOption { type = types.path; }; });
              default = { };
            };
          };
          boot.kernel.sysctl = mkOption {
            type = types.attrsOf types.raw;
            default = { };
          };
          boot.kernelPackages = mkOption {
            type = types.raw;
            default.kernel.isHardened = false;
          };
          security = {
            allowUserNamespaces = bool true;
            unprivilegedUsernsClone = bool false;
            apparmor = {
              enable = bool false;
              policies = mkOption {
                type = types.attrsOf (types.submodule { options.profile = mkOption { type = types.lines; }; });
                default = { };
              };
            };
          };
          assertions = mkOption {
            type = types.listOf types.raw;
            default = [ ];
          };
          warnings = mkOption {
            type = types.listOf types.str;
            default = [ ];
          };
          system.build.toplevel = mkOption {
            type = types.package;
            readOnly = true;
          };
        };
      }
      (
        { config, ... }:
        {
          # As nixpkgs does it, so that an assertion sees what a real machine would have.
          boot.kernel.sysctl = lib.mkIf (!config.security.allowUserNamespaces) {
            "user.max_user_namespaces" = 0;
          };
          system.build.toplevel = pkgs.refuseFailed config (
            pkgs.linkPrograms "nixos-system" "sw" config.environment.systemPackages (
              lib.mapAttrs (_: entry: entry.source) config.environment.etc
            )
          );
        }
      )
    ]
    ++ modules;
  };
in
{
  inherit (evaluated) config options;
  inherit pkgs;
}
