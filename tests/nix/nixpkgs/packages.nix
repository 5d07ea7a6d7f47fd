# The packages and builders that kli uses, on the host's own shell, coreutils, compiler and
# bubblewrap. A builder takes only the arguments listed here.
{ lib, host, system }:
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
    canExecute = other: other.system == system;
  };
in
{
  inherit lib;

  stdenv = {
    hostPlatform = platform;
    buildPlatform = platform;
  };

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
  cargo-deny = program "cargo-deny" "cargo-deny";
  cargo-nextest = program "cargo-nextest" "cargo-nextest";
  nixfmt-tree = program "nixfmt" "nixfmt-tree";

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
