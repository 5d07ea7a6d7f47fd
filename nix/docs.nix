# The documentation of the options, made from their declarations alone: nothing of a package set is
# looked at, which the one that is handed to the modules makes sure of.
{ lib }:
let
  inherit (builtins)
    concatStringsSep
    filter
    match
    ;
  inherit (lib) hasPrefix optionalString removeSuffix;

  noPackages = throw "kli: the documentation of the options must not need a package";

  evaluated = lib.evalModules {
    specialArgs.pkgs = noPackages;
    modules = [
      { options.programs.kli = import ../modules/options.nix { inherit lib; }; }
    ];
  };

  shown = filter (option: hasPrefix "programs.kli." option.name && option.visible && !option.internal) (
    lib.optionAttrSetToDocList evaluated.options
  );

  # Nix code: in the line where it has one line, and otherwise as a block.
  code =
    title: value:
    let
      text = removeSuffix "\n" value.text;
    in
    if match "[^\n]*" text != null then
      "${title}: `${text}`\n"
    else
      "${title}:\n\n```nix\n${text}\n```\n";

  section =
    option:
    concatStringsSep "\n" (
      [
        "## `${option.name}`\n"
        "${removeSuffix "\n" option.description}\n"
        "Type: `${option.type}`${optionalString option.readOnly ", read-only"}\n"
      ]
      ++ lib.optional (option ? default) (code "Default" option.default)
      ++ lib.optional (option ? example) (code "Example" option.example)
    );
in
''
  # Options

  The options of `programs.kli`, the same for home-manager and NixOS. `mkConfiguredKli` takes them as
  arguments, all but `enable` and `finalPackage`, and refuses the same mistakes.

  This page is generated from `modules/options.nix`; `KLI_UPDATE_DOCS=1 scripts/test nix` writes it anew.

''
+ concatStringsSep "\n" (map section shown)
