# The part that home-manager and NixOS have in common. `install` puts a list of packages where the
# surface wants them; they are made from the consumer's pkgs.
{ kliFor, install }:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.programs.kli;
  kli = kliFor pkgs;

  # What would be left without effect if nothing is installed.
  needPackage =
    lib.optional (cfg.sandbox != null) "sandbox"
    ++ lib.optional (cfg.settings != { }) "settings"
    ++ lib.optional (cfg.extraPackages != [ ]) "extraPackages";
in
{
  options.programs.kli = import ./options.nix { inherit lib pkgs; };

  config = lib.mkMerge [
    {
      programs.kli = {
        package = lib.mkOptionDefault kli.kli;
        finalPackage =
          if cfg.package == null then
            null
          else
            kli.configure {
              prefix = "programs.kli.";
              inherit (cfg)
                package
                settings
                sandbox
                extraPackages
                ;
            };
      };
    }
    (lib.mkIf cfg.enable (
      lib.mkMerge [
        (install (lib.optional (cfg.finalPackage != null) cfg.finalPackage))
        {
          assertions = map (option: {
            assertion = cfg.package != null;
            message = "programs.kli.package is null, so programs.kli.${option} would have no effect; set programs.kli.package, or leave programs.kli.${option} out";
          }) needPackage;
        }
      ]
    ))
  ];
}
