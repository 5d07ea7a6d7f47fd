# What scripts/nix-real puts in the place of nixpkgs beside the real crane and home-manager: the real
# `lib`, which it copies in, and as many packages as those two and kli's flake look at, made of the
# host's own tools. A builder here runs the phases and hooks that crane's setup hooks attach to.
{
  outputs =
    { self }:
    let
      lib = import ./lib;
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ] (system: import ./. { inherit system; });
    };
}
