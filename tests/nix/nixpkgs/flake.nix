# A stand-in for nixpkgs, for machines that cannot fetch it: a strict module system and the few
# functions and packages that kli's flake uses, made of the host's own tools.
#
# It answers to: lib (see lib.nix and modules.nix; what is not listed there does not exist),
# lib.nixosSystem (see nixos.nix) and legacyPackages.<system> (see packages.nix). `host.json` is written by scripts/stages/nix and says
# where the host's tools are. What it cannot show: that an option of the real NixOS exists, and how
# the real stdenv builds.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix;
      host = builtins.fromJSON (builtins.readFile ./host.json);
    in
    {
      lib = lib // {
        nixosSystem = import ./nixos.nix {
          inherit lib;
          inherit (self) legacyPackages;
        };
      };
      legacyPackages = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ] (
        system:
        let
          pkgs = import ./packages.nix { inherit lib host system; };
        in
        pkgs
        // {
          testers = import ./testers.nix {
            inherit lib pkgs system;
            inherit (self.lib) nixosSystem;
          };
        }
      );
    };
}
