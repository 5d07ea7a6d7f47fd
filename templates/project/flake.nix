{
  description = "A development shell with kli, confined to the project";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";
    kli = {
      # Where you have kli from.
      url = "github:OWNER/kli";
      inputs.nixpkgs.follows = "nixpkgs";
    };
  };

  outputs =
    { nixpkgs, kli, ... }:
    let
      forSystems =
        make:
        nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
          system: make nixpkgs.legacyPackages.${system}
        );
    in
    {
      devShells = forSystems (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.git
            (kli.lib.mkConfiguredKli {
              inherit pkgs;

              settings.model = "anthropic/claude-sonnet-4-5";

              # What the whole process can touch; everything else is read-only. Its options are those
              # of `programs.kli.sandbox`.
              sandbox = {
                denyRead = [
                  "./.env"
                  "~/.ssh"
                  "~/.aws"
                  "~/.config/gh"
                ];
                denyEnv = [
                  "AWS_*"
                  "GITHUB_*"
                ];
              };
            })
          ];
        };
      });
    };
}
