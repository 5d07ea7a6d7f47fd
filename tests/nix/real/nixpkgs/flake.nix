# What scripts/nix-real puts in the place of nixpkgs beside the real crane and home-manager: the real
# `lib` (input `nixpkgs-lib`), and as many packages as those two and kli's flake look at, made of the
# host's own tools. A builder here runs the phases and hooks that crane's setup hooks attach to.
{
  inputs.nixpkgs-lib.url = "github:nix-community/nixpkgs.lib";

  outputs =
    { self, nixpkgs-lib }:
    let
      host = builtins.fromJSON (builtins.readFile ./host.json);
      inherit (nixpkgs-lib) lib;
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ] (system: import ./packages.nix { inherit lib host system; });
    };
}
