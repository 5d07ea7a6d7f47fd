# kli's home-manager module under the real home-manager, which consumers of kli's own flake never
# fetch. `nix flake check ./tests/home-manager` in a clone builds the generations; scripts/stages/nix
# evaluates the same with stand-ins for the inputs.
{
  description = "kli's module under home-manager";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";
    crane.url = "github:ipetkov/crane";
    home-manager = {
      url = "github:nix-community/home-manager";
      inputs.nixpkgs.follows = "nixpkgs";
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      crane,
      home-manager,
    }:
    let
      inherit (nixpkgs) lib;
      kliFor =
        pkgs:
        import ../../nix {
          inherit pkgs;
          mkCraneLib = crane.mkLib;
        };

      # A home with these options of `programs.kli`, and the package that comes out.
      homeFor =
        system: options:
        home-manager.lib.homeManagerConfiguration {
          pkgs = nixpkgs.legacyPackages.${system};
          modules = [
            (import ../../modules/home-manager.nix { inherit kliFor; })
            (
              { config, ... }:
              {
                home = {
                  username = "ada";
                  homeDirectory = "/home/ada";
                  stateVersion = "26.05";
                };
                programs.kli = {
                  enable = true;
                }
                // options config;
              }
            )
          ];
        };

      homes = {
        plain = _config: { };
        confined = config: {
          settings.model = "anthropic/claude-sonnet-4-5";
          profiles.careful.extends = "review";
          policy.denyTools = [ "eval" ];
          context = "Be brief.";
          sandbox = {
            writablePaths = [ "${config.home.homeDirectory}/.cache/kli" ];
            denyRead = [ "${config.home.homeDirectory}/.aws" ];
            secrets.ANTHROPIC_API_KEY = "/run/secrets/anthropic";
          };
        };
      };
      home = system: name: homeFor system homes.${name};
      both = system: lib.mapAttrs (name: _: (home system name).activationPackage) homes;
    in
    {
      checks = {
        x86_64-linux = both "x86_64-linux";
        aarch64-linux = both "aarch64-linux";
        # The sandbox needs Linux.
        aarch64-darwin.plain = (home "aarch64-darwin" "plain").activationPackage;
      };

      # What stands for the sandbox in the confined one, as kli's launcher reads it.
      specification = (home "x86_64-linux" "confined").config.programs.kli.finalPackage.sandboxSpec;
    };
}
