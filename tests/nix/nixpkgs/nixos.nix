# lib.nixosSystem with the three options that kli's module touches; `system.build.toplevel` holds
# `sw/bin` and is refused while an assertion fails, as on NixOS.
{ lib, legacyPackages }:
{ system, modules }:
let
  pkgs = legacyPackages.${system};
  inherit (lib) mkOption types;
  evaluated = lib.evalModules {
    specialArgs = { inherit pkgs; };
    modules = [
      {
        options = {
          environment.systemPackages = mkOption {
            type = types.listOf types.package;
            default = [ ];
          };
          assertions = mkOption {
            type = types.listOf types.json;
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
          system.build.toplevel = pkgs.refuseFailed config.assertions (
            pkgs.linkPrograms "nixos-system" "sw" config.environment.systemPackages
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
