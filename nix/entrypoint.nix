# A compiled program that sets variables and becomes another program with fixed words before the
# caller's. nixpkgs' makeBinaryWrapper splits its flags at blanks and takes them through a shell;
# here every word is data from end to end, whatever bytes it has.
{ pkgs }:
let
  inherit (pkgs) lib stdenv;
  inherit (stdenv.hostPlatform) isLinux isGnu;

  # A C string literal. `?` is escaped because of trigraphs; all other bytes stand for themselves.
  literal =
    text:
    "\""
    + builtins.replaceStrings [ "\\" "\"" "?" "\n" "\r" ] [ "\\\\" "\\\"" "\\?" "\\n" "\\r" ] text
    + "\"";

  header =
    {
      words,
      called,
      confines,
      variables,
      path,
    }:
    ''
      static const char *const words[] = { ${lib.concatMapStringsSep ", " literal words} };
      #define CALLED ${literal called}
      #define CONFINES ${if confines then "1" else "0"}
      static const struct { const char *name, *value; } variables[] = {
        ${
          lib.concatStrings (
            lib.mapAttrsToList (
              name: value: "{ ${literal name}, ${if value == null then "NULL" else literal value} }, "
            ) variables
          )
        }{ NULL, NULL }
      };
      static const char PATH_PREFIX[] = ${literal path};
    '';
in
{
  name,
  # The file name below `bin/`.
  command,
  # The program (an absolute path) and its first arguments.
  words,
  # What the program finds as its own name.
  called ? lib.head words,
  # Whether the program is the launcher, which gives the loader's variables to what it confines.
  confines ? false,
  # Variables set for it, replacing the caller's; `null` takes one away.
  variables ? { },
  # Directories put before the caller's PATH, joined by `:`.
  path ? "",
  # Shell text run after the program is in place.
  postInstall ? "",
  passthru ? { },
  meta ? { },
}:
pkgs.runCommandCC name
  {
    strictDeps = true;
    buildInputs = lib.optional (isLinux && isGnu) stdenv.cc.libc.static;
    words = header {
      inherit
        words
        called
        confines
        variables
        path
        ;
    };
    passAsFile = [ "words" ];
    inherit passthru meta;
  }
  ''
    mkdir -p "$out/bin" include
    cp "$wordsPath" include/words.h
    $CC -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra ${lib.optionalString isLinux "-static"} -I include -o "$out/bin/${command}" ${./entrypoint.c}
    ${postInstall}
  ''
