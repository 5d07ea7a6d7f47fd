# The values that a specification can hold, as predicates: paths from a closed set of bases, patterns,
# names of variables. The launcher reads them by the same rules; tests/nix/values.json is put to both.
# Pure: it knows `lib` and nothing of options.
{ lib }:
let
  inherit (builtins)
    all
    any
    elem
    elemAt
    filter
    head
    isString
    length
    match
    stringLength
    ;
  inherit (lib) hasPrefix splitString stringToCharacters;

  bases = [
    "/"
    "~/"
    "./"
    "$HOME/"
    "$XDG_CACHE_HOME/"
    "$XDG_CONFIG_HOME/"
    "$XDG_DATA_HOME/"
    "$XDG_RUNTIME_DIR/"
    "$XDG_STATE_HOME/"
  ];

  # The names of a path, its base's own mark (`~`, `$HOME`) among them.
  parts = text: filter (part: part != "" && part != ".") (splitString "/" text);
  climbs = text: elem ".." (splitString "/" text);

  path = text: isString text && any (base: hasPrefix base text) bases && !climbs text;

  isRoot = text: hasPrefix "/" text && parts text == [ ];
  isIn = tops: text: hasPrefix "/" text && parts text != [ ] && elem (head (parts text)) tops;

  denied =
    text:
    path text
    && !isRoot text
    && !isIn [
      "proc"
      "dev"
    ] text;

  readOnly =
    text:
    path text
    && !isIn [
      "proc"
      "sys"
      "dev"
    ] text;

  caches = [
    "@cargo"
    "@go"
    "@nix"
    "@npm"
    "@pip"
    "@uv"
  ];

  writable =
    text:
    isString text
    && (
      elem text caches
      || readOnly text
      && !isRoot text
      && !(
        hasPrefix "/" text
        && elem (parts text) [
          [ "run" ]
          [ "home" ]
        ]
      )
    );

  inWorkspace =
    text:
    isString text
    && !any (first: hasPrefix first text) [
      "/"
      "~"
      "$"
      "@"
    ]
    && parts text != [ ]
    && !climbs text;

  # One name of a pattern, read byte by byte as the launcher reads it: what could mean something else
  # than it does is refused, because a pattern that matches nothing hides nothing.
  patternName =
    name:
    let
      characters = stringToCharacters name;
      count = length characters;
      at = index: if index < count then elemAt characters index else "";

      # The index behind a class; `null` when it has no end, or is none that is known here.
      class =
        first: negated: index:
        let
          one = at index;
          # The character itself, or the one behind a backslash.
          low = if one == "\\" then index + 1 else index;
          isRange = at (low + 1) == "-" && at (low + 2) != "]" && at (low + 2) != "";
          high = if at (low + 2) == "\\" then low + 3 else low + 2;
        in
        if index >= count then
          null
        else if first && !negated && (one == "!" || one == "^") then
          class true true (index + 1)
        else if one == "]" && !first then
          index + 1
        else if
          one == "["
          && elem (at (index + 1)) [
            ":"
            "."
            "="
          ]
        then
          null
        else if low >= count || isRange && (high >= count || at high < at low) then
          null
        else
          class false negated (if isRange then high + 1 else low + 1);

      from =
        afterStar: index:
        let
          one = at index;
          behind = class true false (index + 1);
        in
        if index >= count then
          true
        else if one == "*" then
          !afterStar && from true (index + 1)
        else if one == "\\" then
          index + 1 < count && from false (index + 2)
        else if one == "[" then
          behind != null && from false behind
        else
          one != "{" && from false (index + 1);
    in
    name == "**" || from false 0;

  pattern = text: denied text && all patternName (parts text);

  # A whole name of a variable, and one whose end may be a `*`.
  ownVariable = "KLI_SECRETS_FD";
  variable = text: isString text && match "[^=*]+" text != null && text != ownVariable;
  variables = text: isString text && match "[^=*]+[*]?" text != null;
  # A name under which a key can be handed over.
  keyName =
    text: isString text && match "[A-Za-z_][A-Za-z0-9_]*" text != null && text != ownVariable;

  # Digits and a factor; `null` for anything else, and for what is more than any machine has.
  sizeOf =
    text:
    let
      found = match "0*([1-9][0-9]*)([KMGT]?)" text;
      digits = elemAt found 0;
      unit = elemAt found 1;
      factor =
        {
          "" = 1;
          K = 1024;
          M = 1024 * 1024;
          G = 1024 * 1024 * 1024;
          T = 1024 * 1024 * 1024 * 1024;
        }
        .${unit};
      most =
        {
          "" = 16;
          K = 15;
          M = 12;
          G = 9;
          T = 6;
        }
        .${unit};
    in
    if found == null || stringLength digits > most then
      null
    else
      factor * builtins.fromJSON digits;
  size = text: isString text && sizeOf text != null;
  # Of a size of either kind, a number of bytes or digits with a unit.
  bytes = amount: if isString amount then sizeOf amount else amount;

  # Where kli may keep its data: the variable that names it is read by kli, which knows these two. In
  # the sandbox it becomes a writable path.
  ownPlace =
    text:
    writable text
    && (hasPrefix "/" text || hasPrefix "~/" text)
    && parts text != [ ]
    && !elem (parts text) [ [ "~" ] ]
    && !climbs text;
in
{
  inherit
    parts
    path
    denied
    readOnly
    writable
    inWorkspace
    pattern
    variable
    variables
    keyName
    size
    bytes
    ownPlace
    ;
}
