# The two binaries, built by crane. Strictness (clippy, formatting, licences) lives in checks, so
# that a warning of a newer compiler never stops a consumer's build.
{ pkgs, craneLib }:
let
  inherit (pkgs) lib;
  inherit (lib) fileset;

  manifest = (lib.importTOML ../Cargo.toml).package;

  # The manifest names the entry files of all targets, and cargo wants each of them to exist even
  # where it does not build them.
  manifestFiles = [
    ../Cargo.toml
    ../Cargo.lock
    ../src/lib.rs
    ../src/bin
    ../tests/main.rs
  ];
  sourceOf =
    files:
    fileset.toSource {
      root = ../.;
      fileset = fileset.unions (manifestFiles ++ files);
    };

  meta = {
    inherit (manifest) description;
    license = lib.licenses.mit;
  };

  # The launcher has a source of its own: a change of the agent neither rebuilds it nor changes
  # its store path.
  kli-sandbox = craneLib.buildPackage {
    pname = "kli-sandbox";
    inherit (manifest) version;
    src = sourceOf [ ../src/sandbox ];
    strictDeps = true;
    doCheck = false;
    cargoExtraArgs = "--locked --no-default-features --bin kli-sandbox";
    meta = meta // {
      description = "The launcher that confines kli as a whole process";
      platforms = lib.platforms.linux;
      mainProgram = "kli-sandbox";
    };
  };

  # `src` whole, not only its `.rs` files: prompts, schemas and fixtures are compiled in.
  agent = {
    pname = "kli";
    inherit (manifest) version;
    src = sourceOf [ ../src ];
    strictDeps = true;
    doCheck = false;
    cargoExtraArgs = "--locked";
  };
  cargoArtifacts = craneLib.buildDepsOnly agent;

  kli = craneLib.buildPackage (
    agent
    // {
      inherit cargoArtifacts;
      cargoExtraArgs = "--locked --bin kli";
      # `kli demo` starts the launcher that lies beside its own executable.
      postInstall = lib.optionalString pkgs.stdenv.hostPlatform.isLinux ''
        ln -s ${kli-sandbox}/bin/kli-sandbox "$out/bin/kli-sandbox"
      '';
      meta = meta // {
        platforms = lib.platforms.unix;
        mainProgram = "kli";
      };
    }
  );

  # What the checks read besides the sources of the binaries.
  strict = agent // {
    inherit cargoArtifacts;
    src = sourceOf [
      ../src
      ../benches
      ../docs
      (fileset.difference ../tests ../tests/nix)
      ../clippy.toml
      ../rustfmt.toml
      ../deny.toml
    ];
  };
in
{
  inherit kli kli-sandbox;

  checks = {
    clippy = craneLib.cargoClippy (
      strict // { cargoClippyExtraArgs = "--all-targets -- --deny warnings"; }
    );
    # The rooms whose unit tests need nothing but the test binary. `host` and `tool` start shells,
    # git and bubblewrap, and the integration tests make jails, which a build sandbox does not allow:
    # scripts/test runs those.
    unit = craneLib.cargoTest (
      strict
      // {
        doCheck = true;
        cargoTestExtraArgs = "--lib -- agent:: authority:: config:: model:: sandbox:: session::";
      }
    );
    fmt = craneLib.cargoFmt { inherit (strict) pname version src; };
    deny = craneLib.cargoDeny { inherit (strict) pname version src; };
  };
}
