# A stand-in for home-manager: `lib.homeManagerConfiguration` over home.username,
# home.homeDirectory, home.stateVersion, home.packages, assertions and warnings. Its activationPackage
# holds `home-path/bin` and is refused while an assertion fails. Every other option is an error.
{
  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      inherit (lib) mkOption types;
    in
    {
      lib.homeManagerConfiguration =
        { pkgs, modules }:
        let
          evaluated = lib.evalModules {
            specialArgs = { inherit pkgs; };
            modules = [
              {
                options = {
                  home = {
                    username = mkOption { type = types.str; };
                    homeDirectory = mkOption { type = types.str; };
                    stateVersion = mkOption { type = types.str; };
                    packages = mkOption {
                      type = types.listOf types.package;
                      default = [ ];
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
                };
              }
            ]
            ++ modules;
          };
          inherit (evaluated) config;
        in
        {
          inherit config;
          inherit (evaluated) options;
          activationPackage = pkgs.refuseFailed config (
            pkgs.linkPrograms "home-manager-generation" "home-path" config.home.packages { }
          );
        };
    };
}
