# The packages. Platforms are the real ones of `lib.systems`, and so are scopes and splicing as far
# as they are in `lib`.
{
  lib,
  host,
  system,
  static ? false,
}:
let
  hostPlatform = lib.systems.elaborate (
    if static then
      {
        config = "${lib.head (lib.splitString "-" system)}-unknown-linux-musl";
        isStatic = true;
      }
    else
      { inherit system; }
  );
  buildPlatform = lib.systems.elaborate { inherit system; };

  # A derivation that a shell of the host makes; what is no attribute of a builder stays beside it.
  raw =
    arguments: script:
    let
      beside = [
        "meta"
        "passthru"
        "env"
      ];
      drv = derivation (
        removeAttrs arguments beside
        // arguments.env or { }
        // {
          inherit (host) system;
          builder = host.shell;
          args = [
            "-euo"
            "pipefail"
            "-c"
            (
              ''
                export PATH=${host.path}
                for input in ''${depsBuildBuild-} ''${nativeBuildInputs-} ''${buildInputs-}; do
                  PATH=$input/bin:$PATH
                done
                cd "$TMPDIR"
                # As in nixpkgs: a name that is not set is empty.
                set +u
                # Of its options the one that home-manager uses.
                substituteInPlace() {
                  local file=$1 text
                  shift
                  text=$(cat "$file")
                  while [ $# -gt 0 ]; do
                    [ "$1" = --subst-var-by ] || return 1
                    text=''${text//@$2@/$3}
                    shift 3
                  done
                  printf '%s\n' "$text" >"$file"
                }
              ''
              + script
              + "\n:"
            )
          ];
        }
      );
    in
    drv // arguments.passthru or { } // { inherit (arguments) meta; } // lib.optionalAttrs (!arguments ? meta) { meta = { }; };

  mkDerivation =
    arguments:
    raw (
      {
        name = if arguments ? pname then "${arguments.pname}-${arguments.version}" else "unnamed";
        meta = { };
      }
      // arguments
      // {
        passthru = {
          inherit (arguments) version;
        }
        // arguments.passthru or { };
      }
    ) (builtins.readFile ./phases.sh);

  run =
    name: attributes: script:
    raw ({ meta = { }; } // attributes // { inherit name; }) script;
  writeText =
    name: text:
    run name {
      inherit text;
      passAsFile = [ "text" ];
    } ''cp "$textPath" "$out"'';
  writeTextFile =
    {
      name,
      text,
      destination ? "",
      executable ? false,
      checkPhase ? "",
      ...
    }:
    run name
      {
        inherit text checkPhase;
        passAsFile = [ "text" ];
      }
      ''
        target=$out${destination}
        mkdir -p "$(dirname "$target")"
        cp "$textPath" "$target"
        ${lib.optionalString executable ''chmod +x "$target"''}
        eval "$checkPhase"
      '';

  # A package of one or more programs of the host.
  programs = lib.genAttrs (lib.attrNames named) (
    name:
    run name { } ''
      mkdir -p "$out/bin"
      for one in ${named.${name}}; do
        if found=$(command -v "$one"); then ln -s "$found" "$out/bin/$one"; fi
      done
    ''
  );
  named = {
    bash = "bash sh";
    bashInteractive = "bash sh";
    coreutils = "ls cp mv rm cat readlink dirname basename mkdir id tr sort";
    diffutils = "diff cmp";
    findutils = "find xargs";
    gnugrep = "grep";
    gnused = "sed";
    gettext = "msgfmt";
    git = "git";
    jq = "jq";
    lndir = "lndir";
    ncurses = "tput";
    nix = "nix nix-env nix-build nix-store";
    nixfmt-tree = "nixfmt";
    cargo-deny = "cargo-deny";
    cargo-nextest = "cargo-nextest";
    rsync = "rsync";
    zstd = "zstd";
    cacert = "true";
    cargo-llvm-cov = "cargo-llvm-cov";
    systemd = "systemctl";
    dbus = "dbus-daemon";
    shared-mime-info = "update-mime-database";
    man-db = "man";
    inetutils = "hostname";
    less = "less";
  };

  # A Rust toolchain whose root is where it says it is.
  toolchain = run "rust-${host.toolchainVersion}" { } ''
    mkdir -p "$out/bin"
    for one in cargo clippy-driver cargo-clippy rustfmt cargo-fmt rustdoc; do
      if [ -e ${host.toolchain}/bin/$one ]; then ln -s ${host.toolchain}/bin/$one "$out/bin/$one"; fi
    done
    {
      echo '#!${host.shell}'
      echo "[ \"\$*\" = '--print sysroot' ] && exec echo $out"
      echo 'exec ${host.toolchain}/bin/rustc "$@"'
    } > "$out/bin/rustc"
    chmod +x "$out/bin/rustc"
  '';

  base = {
    inherit lib system;
    config = { };
    overlays = [ ];
    path = ./.;
    stdenv = {
      inherit hostPlatform buildPlatform mkDerivation;
      targetPlatform = hostPlatform;
      inherit (hostPlatform) system;
      shell = host.shell;
      cc = run "cc" { passthru = { targetPrefix = ""; libc.static = run "libc-static" { } ''mkdir "$out"''; }; } ''
        mkdir -p "$out/bin"
        for one in cc c++ ar; do ln -s "$(command -v $one)" "$out/bin/$one"; done
      '';
    };
    runCommand = run;
    runCommandLocal = run;
    runCommandCC = name: attributes: script: run name attributes ("export CC=cc\n" + script);
    darwin.signingUtils = writeText "signing-utils" "";
    glibcLocales = base.emptyDirectory;
    man = base.emptyDirectory;
    sd-switch = base.emptyDirectory;
    emptyDirectory = run "empty-directory" { passthru.version = "2.40"; } ''mkdir "$out"'';
    inherit writeText writeTextFile;
    writeShellScript =
      name: text:
      writeTextFile {
        inherit name;
        executable = true;
        text = "#!${host.shell}\n${text}\n";
      };
    makeSetupHook =
      {
        name,
        substitutions ? { },
        ...
      }:
      script:
      run name { } ''
        mkdir -p "$out/nix-support"
        cp ${script} "$out/nix-support/setup-hook"
        chmod +w "$out/nix-support/setup-hook"
        ${lib.concatStrings (
          lib.mapAttrsToList (from: to: ''
            value=${lib.escapeShellArg (toString to)}
            text=$(cat "$out/nix-support/setup-hook")
            printf '%s\n' "''${text//@${from}@/$value}" > "$out/nix-support/setup-hook"
          '') substitutions
        )}
      '';
    replaceVars =
      file: values:
      writeText (baseNameOf file) (
        lib.replaceStrings (map (name: "@${name}@") (lib.attrNames values)) (map toString (
          lib.attrValues values
        )) (builtins.readFile file)
      );
    # Crates come from cargo's own store of archives; the hash is checked all the same.
    fetchurl =
      { name, sha256, ... }:
      run name
        {
          outputHash = sha256;
          outputHashAlgo = "sha256";
          outputHashMode = "flat";
        }
        ''
          file=${host.cargoHome}/registry/cache/*/${lib.removePrefix "cargo-src-" name}.crate
          cp $file "$out"
        '';
    # For crane's own helper, whose crates nobody has locked here: cargo fetches them.
    rustPlatform.buildRustPackage =
      { pname, version, src, ... }:
      run "${pname}-${version}" { inherit src; } ''
        export PATH=${toolchain}/bin:$PATH CARGO_HOME=${host.cargoHome}
        cp -r --no-preserve=mode "$src" source && cd source
        cargo build --locked --target-dir target
        mkdir -p "$out/bin"
        find target/debug -maxdepth 1 -type f -executable -exec cp {} "$out/bin/" \;
      '';
    writableTmpDirAsHomeHook = base.emptyDirectory;
    cargo = toolchain;
    rustc = toolchain;
    clippy = toolchain;
    rustfmt = toolchain;
    mkShell =
      {
        packages ? [ ],
        ...
      }:
      run "shell" { inherit packages; } ''echo "$packages" > "$out"'';
    bubblewrap = run "bubblewrap" { } ''
      mkdir -p "$out/bin"
      cp "$(command -v bwrap)" "$out/bin/bwrap"
    '';
    symlinkJoin = { name, paths, ... }: base.buildEnv { inherit name paths; };
    buildEnv =
      { name, paths, ... }:
      run name { inherit paths; } ''
        mkdir -p "$out"
        for path in $paths; do cp -rsn --no-preserve=mode "$path"/. "$out/" || true; done
      '';
    formats = {
      json = _: {
        type = lib.types.json or lib.types.anything;
        generate = name: value: writeText name (builtins.toJSON value);
      };
    }
    // lib.genAttrs [ "toml" "yaml" "ini" "iniWithGlobalSection" "keyValue" "hocon" "lua" "xml" ] (
      _: _: {
        type = lib.types.anything;
        lib.types.atom = lib.types.anything;
        generate = name: value: writeText name (builtins.toJSON value);
      }
    );
    dockerTools.buildLayeredImage =
      {
        name,
        tag,
        contents,
        extraCommands,
        config,
      }:
      run "${name}.tar.gz" { inherit contents extraCommands; } ''echo ${lib.escapeShellArg (builtins.toJSON config)} > "$out"'';
    pkgsStatic = import ./packages.nix {
      inherit lib host system;
      static = true;
    };
    newScope = extra: lib.callPackageWith (pkgs // extra);
    callPackage = pkgs.newScope { };
    splicePackages = { pkgsHostTarget, ... }: pkgsHostTarget;
    makeScopeWithSplicing' = lib.makeScopeWithSplicing' { inherit (pkgs) splicePackages newScope; };
    buildPackages = native;
    pkgsBuildBuild = native;
    pkgsBuildHost = native;
    pkgsBuildTarget = native;
    pkgsHostHost = pkgs;
    pkgsHostTarget = pkgs;
    pkgsTargetTarget = { };
    inherit pkgs;
  };
  native = if static then import ./packages.nix { inherit lib host system; } else pkgs;
  pkgs = programs // base;
in
pkgs
