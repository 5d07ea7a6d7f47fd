# The packages and builders that kli uses, on the host's own shell, coreutils, compiler and
# bubblewrap. A builder takes only the arguments listed here.
{
  lib,
  host,
  system,
  isStatic ? false,
}@arguments:
let
  # Attributes of a derivation that never reach its builder.
  finish =
    {
      passthru ? { },
      meta ? { },
    }:
    drv: drv // passthru // { inherit passthru meta; };

  run =
    name: attributes: script:
    finish
      {
        passthru = attributes.passthru or { };
        meta = attributes.meta or { };
      }
      (
        derivation (
          removeAttrs attributes [
            "passthru"
            "meta"
          ]
          // {
            inherit name system;
            builder = host.shell;
            args = [
              "-euo"
              "pipefail"
              "-c"
              ''
                export PATH=${host.path} CC=cc
                cd "$TMPDIR"
                ${script}
                # The shell must end last: Nix kills a builder that has closed its output, and
                # coreutils close theirs before they exit.
                :
              ''
            ];
          }
        )
      );

  program = name: package: run package { } ''
    mkdir -p "$out/bin"
    found=$(command -v ${name}) || { echo "the host has no ${name}" >&2; exit 1; }
    ln -s "$found" "$out/bin/${name}"
  '';

  isLinux = builtins.match ".*-linux" system != null;
  platform = {
    inherit system isLinux;
    isDarwin = !isLinux;
    isGnu = isLinux;
    inherit isStatic;
    canExecute = other: other.system == system;
    rust.rustcTarget =
      if system == host.system then host.triple else builtins.replaceStrings [ "-" ] [ "-unknown-" ] system;
  };

  # An environment for `nix develop`: what it sources puts the packages first in PATH.
  mkShell =
    {
      packages ? [ ],
    }:
    run "shell" {
      inherit packages;
      # Where `nix develop` writes what it finds.
      outputs = [ "out" ];
      stdenv = run "shell-stdenv" { } ''
        mkdir "$out"
        echo 'for package in $packages; do PATH=$package/bin:$PATH; done; export PATH' > "$out/setup"
      '';
    } ''echo "$packages" > "$out"'';
in
{
  inherit lib;

  stdenv = {
    hostPlatform = platform;
    buildPlatform = platform;
    # The host's compiler finds the host's static libraries itself.
    cc.libc.static = run "libc-static" { } ''mkdir "$out"'';
  };
  pkgsStatic = import ./packages.nix (arguments // { isStatic = true; });
  inherit mkShell;

  runCommand = run;
  # With a C compiler as `$CC`.
  runCommandCC = run;

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
      checkPhase ? "",
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
        eval "$checkPhase"
      '';

  # A copy and no link, as the real package is a file of the store.
  bubblewrap = run "bubblewrap" { } ''
    mkdir -p "$out/bin"
    cp "$(command -v bwrap)" "$out/bin/bwrap"
  '';
  git = program "git" "git";
  perl = program "perl" "perl";
  procps = program "ps" "procps";
  cargo-deny = program "cargo-deny" "cargo-deny";
  cargo-nextest = program "cargo-nextest" "cargo-nextest";
  bashInteractive = program "bash" "bash";
  coreutils = program "ls" "coreutils";
  diffutils = program "diff" "diffutils";
  findutils = program "find" "findutils";
  gnugrep = program "grep" "gnugrep";
  gnused = program "sed" "gnused";
  cacert = run "cacert" { } ''
    mkdir -p "$out/etc/ssl/certs"
    echo "no certificate" > "$out/etc/ssl/certs/ca-bundle.crt"
  '';
  nixfmt-tree = program "nixfmt" "nixfmt-tree";

  # The image's configuration and its files, as one archive; the real one has a layer for each
  # package, and a manifest.
  dockerTools.buildLayeredImage =
    {
      name,
      tag,
      contents,
      extraCommands,
      config,
    }:
    run "${name}.tar.gz"
      {
        inherit contents;
        config = builtins.toJSON config;
        passAsFile = [ "config" ];
      }
      ''
        mkdir -p image/root && cd image/root
        for package in $contents; do
          mkdir -p bin
          for one in "$package"/bin/*; do ln -s "$one" bin/; done
        done
        ${extraCommands}
        cd ..
        echo '{"name": "${name}", "tag": "${tag}"}' > name.json
        cp "$configPath" config.json
        tar --sort=name --mtime=@1 --owner=0 --group=0 --numeric-owner -czf "$out" name.json config.json root
      '';

  # For the stand-ins of NixOS and home-manager: `DIR/bin` with the programs of the packages, and
  # files below `etc`.
  linkPrograms =
    name: directory: packages: etc:
    run name { inherit packages; } ''
      mkdir -p "$out/${directory}/bin" "$out/etc"
      for package in $packages; do
        ln -s "$package"/bin/* "$out/${directory}/bin/"
      done
      ${lib.concatStrings (
        lib.mapAttrsToList (name: source: ''
          mkdir -p "$(dirname "$out/etc/${name}")"
          ln -s "${source}" "$out/etc/${name}"
        '') etc
      )}
    '';
  refuseFailed =
    config: value:
    let
      failed = builtins.filter (one: !one.assertion) config.assertions;
    in
    if failed == [ ] then
      lib.showWarnings config.warnings value
    else
      throw "Failed assertions:\n${lib.concatMapStringsSep "\n" (one: "- ${one.message}") failed}";
}
