# Everything that kli's flake makes from one set of packages. Pure wiring: what is built is in
# package.nix, how a configured kli is put together in producer.nix.
{ pkgs, mkCraneLib }:
let
  inherit (pkgs) lib;

  package = import ./package.nix { inherit pkgs mkCraneLib; };
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

  # Both programs, linked statically and copied: a directory that works wherever it is put.
  kli-static =
    let
      static = import ./package.nix {
        pkgs = pkgs.pkgsStatic;
        inherit mkCraneLib;
      };
    in
    pkgs.runCommand "kli-static-${package.kli.version}"
      {
        meta = package.kli.meta // {
          description = package.kli.meta.description + ", linked statically";
          platforms = lib.platforms.linux;
        };
      }
      ''
        mkdir -p "$out/bin"
        cp ${static.kli}/bin/kli ${static.kli-sandbox}/bin/kli-sandbox "$out/bin/"
        ln -s kli "$out/bin/kli-admin"
        cp -r ${package.kli}/share "$out/share"
      '';

  container = import ./container.nix {
    inherit pkgs;
    inherit (package) kli;
  };

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

  devShell = (mkCraneLib pkgs).devShell {
    packages = [
      package.kli
      pkgs.cargo-deny
      pkgs.cargo-nextest
      pkgs.git
    ]
    ++ lib.optionals pkgs.stdenv.hostPlatform.isLinux [ pkgs.bubblewrap ];
  };
}
