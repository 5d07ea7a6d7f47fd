# A home of the real home-manager that uses kli's module, and two that it must refuse.
{
  inputs = {
    nixpkgs.url = "path:../nixpkgs";
    home-manager.url = "github:nix-community/home-manager";
    kli.url = "path:../../../..";
  };

  outputs =
    {
      self,
      nixpkgs,
      home-manager,
      kli,
    }:
    let
      host = builtins.fromJSON (builtins.readFile ./host.json);
      home =
        options:
        home-manager.lib.homeManagerConfiguration {
          pkgs = nixpkgs.legacyPackages.${host.system};
          # Few of its modules need packages that nobody has here, and all of those can be left out.
          minimal = true;
          modules = [
            kli.homeModules.default
            (
              { config, ... }:
              {
                home = {
                  username = "me";
                  homeDirectory = "/home/me";
                  stateVersion = "26.05";
                  enableNixpkgsReleaseCheck = false;
                };
              }
            )
            { programs.kli = { enable = true; } // options; }
          ];
        };
    in
    {
      generation =
        (home {
          settings.model = "replay/demo";
          sandbox = {
            denyRead = [ "~/.ssh" ];
            denyEnv = [ "AWS_*" ];
          };
        }).activationPackage;
      misspelt = (home { sandbox.netwrok = false; }).activationPackage;
      wrongType = (home { sandbox.network = "no"; }).activationPackage;
    };
}
