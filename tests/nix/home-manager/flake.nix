# A stand-in for home-manager: `lib.homeManagerConfiguration` and
# `nixosModules.home-manager` over home.username,
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
      # Users of a NixOS machine, each with a home of its own.
      nixosModules.home-manager =
        { config, pkgs, ... }:
        {
          options.home-manager = {
            useUserPackages = mkOption {
              type = types.bool;
              default = false;
            };
            users = mkOption {
              type = types.attrsOf types.raw;
              default = { };
            };
          };
          config.environment.etc = lib.mkIf config.home-manager.useUserPackages (
            lib.genAttrs (map (name: "profiles/per-user/${name}") (builtins.attrNames config.home-manager.users)) (
              path:
              let
                name = baseNameOf path;
                made = self.lib.homeManagerConfiguration {
                  inherit pkgs;
                  modules = [
                    {
                      home.username = name;
                      home.homeDirectory = "/home/${name}";
                    }
                    config.home-manager.users.${name}
                  ];
                };
              in
              {
                source = "${made.activationPackage}/home-path";
              }
            )
          );
        };

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
