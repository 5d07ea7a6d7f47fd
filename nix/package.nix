# The two binaries, built by crane. Strictness (clippy, formatting, licences) lives in checks, so
# that a warning of a newer compiler never stops a consumer's build.
{ pkgs, mkCraneLib }:
let
  inherit (pkgs) lib stdenv;
  inherit (lib) fileset;
  inherit (stdenv) hostPlatform buildPlatform;

  craneLib = mkCraneLib pkgs;
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

  # For a static platform. The ordinary ones stay dynamic: the launcher looks the user up by way of
  # the C library's modules (LDAP, systemd), which no static program can load. The target is named
  # because cargo would otherwise link its macros statically as well.
  linkedStatically = {
    buildInputs = lib.optional hostPlatform.isGnu stdenv.cc.libc.static;
    CARGO_BUILD_TARGET = hostPlatform.rust.rustcTarget;
    CARGO_BUILD_RUSTFLAGS = "-C target-feature=+crt-static";
  };

  meta = {
    inherit (manifest) description;
    license = lib.licenses.mit;
  };

  # The launcher has a source of its own: a change of the agent neither rebuilds it nor changes
  # its store path.
  launcher = {
    pname = "kli-sandbox";
    inherit (manifest) version;
    src = sourceOf [ ../src/sandbox ];
    # Cargo.toml has it: small before all else.
    CARGO_PROFILE = "launcher";
    strictDeps = true;
    doCheck = false;
    cargoExtraArgs = "--locked --no-default-features --bin kli-sandbox";
  }
  // lib.optionalAttrs hostPlatform.isStatic linkedStatically;
  kli-sandbox = craneLib.buildPackage (
    launcher
    // {
      cargoArtifacts = craneLib.buildDepsOnly launcher;
      meta = meta // {
        description = "The launcher that confines kli as a whole process";
        platforms = lib.platforms.linux;
        mainProgram = "kli-sandbox";
      };
    }
  );

  # `src` whole, not only its `.rs` files: prompts, schemas and fixtures are compiled in.
  agent = {
    pname = "kli";
    inherit (manifest) version;
    src = sourceOf [ ../src ];
    strictDeps = true;
    doCheck = false;
    cargoExtraArgs = "--locked";
  }
  // lib.optionalAttrs hostPlatform.isStatic linkedStatically;
  cargoArtifacts = craneLib.buildDepsOnly agent;

  # Manual pages, completions, schemas and the reference come from the program itself; where the
  # building machine cannot run it, from one that it can: the same source gives the same bytes.
  share =
    if buildPlatform.canExecute hostPlatform then
      ''"$out/bin/kli" generate "$out/share"''
    else
      let
        native = import ./package.nix {
          pkgs = pkgs.buildPackages;
          inherit mkCraneLib;
        };
      in
      ''cp -r --no-preserve=mode ${native.kli}/share "$out/share"'';

  kli = craneLib.buildPackage (
    agent
    // {
      inherit cargoArtifacts;
      cargoExtraArgs = "--locked --bin kli";
      # `kli demo` starts the launcher that lies beside its own executable.
      postInstall = ''
        ln -s kli "$out/bin/kli-admin"
        ${lib.optionalString hostPlatform.isLinux ''
          ln -s ${kli-sandbox}/bin/kli-sandbox "$out/bin/kli-sandbox"
        ''}
        ${share}
      '';
      meta = meta // {
        platforms = lib.platforms.unix;
        mainProgram = "kli";
      };
    }
  );

  # The checks, in the development profile, and what they read besides the sources of the binaries.
  tests = agent // {
    CARGO_PROFILE = "dev";
  };
  strict = tests // {
    cargoArtifacts = craneLib.buildDepsOnly (tests // { doCheck = true; });
    src = sourceOf [
      ../src
      ../benches
      ../docs
      ../schema
      ../README.md
      ../CHANGELOG.md
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
    nextest = craneLib.cargoNextest (
      strict
      // {
        doCheck = true;
        cargoNextestExtraArgs = "--lib -E 'test(/^(agent|authority|config|message|model|sandbox|session)::/)'";
      }
    );
    doc = craneLib.cargoDoc (
      strict
      // {
        cargoDocExtraArgs = "--no-deps --document-private-items";
        RUSTDOCFLAGS = "--deny warnings";
      }
    );
    fmt = craneLib.cargoFmt { inherit (strict) pname version src; };
    deny = craneLib.cargoDeny { inherit (strict) pname version src; };
  };
}
