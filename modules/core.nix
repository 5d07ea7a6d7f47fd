# The part that home-manager and NixOS have in common. `install` puts a list of packages where the
# surface wants them; they are made from the consumer's pkgs. `home` tells the home directory of the
# only user where there is one, `bindsMachine` whether the policy becomes the machine's.
{
  kliFor,
  install,
  home ? (_config: null),
  bindsMachine ? false,
}:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.programs.kli;
  kli = kliFor pkgs;
  findings = import ../nix/findings.nix { inherit lib; };
  prefix = "programs.kli.";
  inherit (pkgs.stdenv) hostPlatform;

  judged = {
    inherit prefix;
    inherit (cfg)
      settings
      profiles
      themes
      keybindings
      policy
      sandbox
      dataDir
      context
      package
      ;
    home = home config;
    machinePolicy = bindsMachine && cfg.policy != { };
    inherit (hostPlatform) system isLinux;
  };

  # What would be left without effect if nothing is installed.
  needPackage =
    lib.optional (cfg.sandbox != null) "sandbox"
    ++ lib.optional (cfg.settings != { }) "settings"
    ++ lib.optional (cfg.profiles != { }) "profiles"
    ++ lib.optional (cfg.themes != { }) "themes"
    ++ lib.optional (cfg.keybindings != { }) "keybindings"
    ++ lib.optional (cfg.policy != { } && !bindsMachine) "policy"
    ++ lib.optional (cfg.context != null) "context"
    ++ lib.optional (cfg.dataDir != null) "dataDir"
    ++ lib.optional (cfg.extraPackages != [ ]) "extraPackages";
in
{
  options.programs.kli = import ./options.nix { inherit lib; };

  config = lib.mkMerge [
    {
      programs.kli = {
        package = lib.mkOptionDefault kli.kli;
        finalPackage =
          if cfg.package == null then
            null
          else
            kli.configure {
              inherit prefix;
              inherit (cfg)
                package
                settings
                profiles
                themes
                keybindings
                policy
                sandbox
                context
                dataDir
                extraPackages
                ;
            };
      };
    }
    (lib.mkIf cfg.enable (
      lib.mkMerge [
        (install (lib.optional (cfg.finalPackage != null) cfg.finalPackage))
        {
          assertions =
            map (message: {
              assertion = false;
              inherit message;
            }) (findings.problems judged)
            ++ map (option: {
              assertion = cfg.package != null;
              message = "programs.kli.package is null, so programs.kli.${option} would have no effect; set programs.kli.package, or leave programs.kli.${option} out";
            }) needPackage;
          warnings = findings.warnings judged;
        }
      ]
    ))
  ];
}
