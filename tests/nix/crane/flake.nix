# A stand-in for crane, for machines that cannot fetch it: each function runs the host's cargo,
# offline, on the very source that kli's flake selects, so a file missing from the source is found.
#
# It answers to: mkLib pkgs -> buildPackage, buildDepsOnly, cargoClippy, cargoNextest, cargoDoc,
# cargoFmt, cargoDeny, devShell, with the arguments listed below and no others. What differs from
# crane, on purpose: always the development profile, and compiled dependencies are kept in a
# directory of the host (`cache` in host.json) instead of the store.
{
  outputs =
    { self }:
    let
      host = builtins.fromJSON (builtins.readFile ./host.json);
    in
    {
      mkLib =
        pkgs:
        let
          # Runs `command` in a copy of the source, with a target directory that the functions of
          # one `pname` share and later builds find again.
          cargo =
            suffix: command:
            {
              pname,
              version,
              src,
              strictDeps ? false,
              doCheck ? true,
              buildInputs ? [ ],
              cargoExtraArgs ? "--locked",
              cargoArtifacts ? null,
              cargoClippyExtraArgs ? "",
              cargoDocExtraArgs ? "",
              cargoNextestExtraArgs ? "",
              postInstall ? "",
              passthru ? { },
              meta ? { },
              CARGO_BUILD_TARGET ? "",
              CARGO_BUILD_RUSTFLAGS ? "",
              CARGO_PROFILE ? "release",
              RUSTDOCFLAGS ? "",
            }:
            pkgs.runCommand "${pname}${suffix}-${version}"
              {
                inherit
                  src
                  strictDeps
                  buildInputs
                  cargoExtraArgs
                  cargoClippyExtraArgs
                  cargoDocExtraArgs
                  meta
                  RUSTDOCFLAGS
                  ;
                passthru = passthru // {
                  inherit pname version;
                };
                toolchain = host.toolchain;
              }
              ''
                export CARGO_HOME=${host.cargoHome} CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never
                # Set and empty is not the same as absent to cargo.
                ${if CARGO_BUILD_TARGET == "" then "" else "export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET}"}
                ${if CARGO_BUILD_RUSTFLAGS == "" then "" else "export CARGO_BUILD_RUSTFLAGS='${CARGO_BUILD_RUSTFLAGS}'"}
                work=${host.cache}/${pname}
                mkdir -p "$work"
                exec 9> "$work/lock"
                flock 9
                rm -rf "$work/source"
                cp -r --no-preserve=mode,ownership,timestamps "$src" "$work/source"
                cd "$work/source"
                export CARGO_TARGET_DIR=$work/target
                mkdir -p "$out"
                ${command}
                ${postInstall}
              '';
        in
        {
          buildPackage = cargo "" ''
            cargo build --offline $cargoExtraArgs --message-format json-render-diagnostics > "$work/log"
            mkdir -p "$out/bin"
            sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$work/log" | while read -r built; do
              cp "$built" "$out/bin/"
            done
          '';
          buildDepsOnly = cargo "-deps" "cargo fetch --offline --locked --target ${host.triple}";
          cargoClippy = cargo "-clippy" "cargo clippy --offline $cargoExtraArgs $cargoClippyExtraArgs";
          cargoNextest =
            { cargoNextestExtraArgs, ... }@arguments:
            cargo "-nextest" "cargo nextest run --offline --locked ${cargoNextestExtraArgs}" arguments;
          cargoDoc = cargo "-doc" "cargo doc --offline $cargoExtraArgs $cargoDocExtraArgs";
          cargoFmt = cargo "-fmt" "cargo fmt --check";
          cargoDeny = cargo "-deny" "cargo deny --offline check bans licenses sources";
          devShell = pkgs.mkShell;
        };
    };
}
