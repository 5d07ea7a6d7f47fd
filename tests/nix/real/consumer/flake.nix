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
          modules = [
            kli.homeModules.default
            {
              home = {
                username = "me";
                homeDirectory = "/home/me";
                stateVersion = "26.05";
                enableNixpkgsReleaseCheck = false;
              };
              # Its manual is made by packages that are not here.
              manual.manpages.enable = false;
            }
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
