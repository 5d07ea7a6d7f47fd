# Everything that kli's flake makes from one set of packages. Pure wiring: what is built is in
# package.nix, how a configured kli is put together in producer.nix.
{ pkgs, craneLib }:
let
  inherit (pkgs) lib;

  package = import ./package.nix { inherit pkgs craneLib; };
  entrypoint = import ./entrypoint.nix { inherit pkgs; };
  producer = import ./producer.nix {
    inherit pkgs entrypoint;
    inherit (package) kli kli-sandbox;
  };
in
{
  inherit (package) kli kli-sandbox checks;
  inherit (producer) configure mkConfiguredKli;
  inherit entrypoint;

  # `kli demo` makes its own jail, so it is started from the unjailed package, with the two
  # programs it calls.
  demo = entrypoint {
    name = "kli-demo";
    command = "kli-demo";
    words = [
      "${package.kli}/bin/kli"
      "demo"
    ];
    path = lib.makeBinPath [
      pkgs.bubblewrap
      pkgs.git
    ];
    meta = package.kli.meta // {
      mainProgram = "kli-demo";
    };
  };

  devShell = craneLib.devShell {
    packages = [
      pkgs.cargo-deny
      pkgs.cargo-nextest
      pkgs.git
    ]
    ++ lib.optionals pkgs.stdenv.hostPlatform.isLinux [ pkgs.bubblewrap ];
  };
}
