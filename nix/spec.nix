# The sandbox specification as data, and the guard against secrets. Pure: it knows `lib` and
# nothing of packages, so that it can be tested by evaluation alone.
{ lib }:
let
  inherit (builtins)
    any
    attrNames
    concatMap
    elemAt
    isAttrs
    isList
    isString
    length
    match
    split
    stringLength
    toJSON
    ;

  # The launcher's keys; the same names are the options.
  keys = [
    "network"
    "nestedUserns"
    "writablePaths"
    "readOnlyPaths"
    "denyRead"
    "denyReadGlobs"
    "denyEnv"
    "passEnv"
    "env"
    "git"
    "protect"
    "allowSockets"
    "localPorts"
    "envFiles"
    "allowNixDaemon"
    "allowHomeWorkspace"
    "allowAbstractSockets"
    "secrets"
    "secretEnv"
    "allowUserNamespaces"
    "stateDir"
    "tmp"
    "limits"
  ];

  # The variables in which the providers that kli knows have their keys. A configured kli gets them
  # through a pipe, and nothing that it starts has them.
  providerKeys = [
    "ANTHROPIC_API_KEY"
    "OPENAI_API_KEY"
  ];

  # All keys, also those at their default: a default that changes in a later launcher must not
  # change what an older configuration means.
  render = sandbox: { version = 1; } // lib.getAttrs keys sandbox;

  # Does the pattern occur in the text? `split` and not `match ".*…"`, which recurses once per
  # character and overflows on long texts.
  occurs = pattern: text: length (split pattern text) > 1;

  # Where a credential of a known issuer begins. A word boundary before it keeps `task-ant-` out.
  issuers = [
    "sk-ant-[A-Za-z0-9_-]{8}"
    "sk-proj-[A-Za-z0-9_-]{8}"
    "sk-or-[A-Za-z0-9_-]{8}"
    "sk-(svcacct|admin)-[A-Za-z0-9_-]{8}"
    "sk-[A-Za-z0-9]{20}"
    "A(KIA|SIA)[0-9A-Z]{16}"
    "AIza[0-9A-Za-z_-]{30}"
    "gh[pousr]_[A-Za-z0-9]{20}"
    "github_pat_[A-Za-z0-9_]{20}"
    "glpat-[A-Za-z0-9_-]{16}"
    "gsk_[A-Za-z0-9]{20}"
    "hf_[A-Za-z0-9]{20}"
    "xai-[A-Za-z0-9]{20}"
    "xox[abprs]-[A-Za-z0-9-]{10}"
    "-----BEGIN [A-Z ]*PRIVATE KEY-----"
  ];
  issued = text: any (pattern: occurs "(^|[^A-Za-z0-9])${pattern}" text) issuers;

  # Names that hold a credential, and names that only say where one is.
  keyish =
    name:
    (
      occurs "[kK]eys?$|KEY|[tT]okens?$|TOKEN|[sS]ecret|SECRET" name
      || occurs "[pP]assw|PASSW|[cC]redential|CREDENTIAL|[aA]uthorization|AUTHORIZATION" name
    )
    && !occurs "(Env|File|Command|Path|_ENV|_FILE|_COMMAND|_PATH)$" name;

  # Twenty characters or more without blanks, letters and digits mixed; not a path, not a
  # reference to a variable. `Bearer` before it is part of a header.
  keylike =
    text:
    let
      bare = match "([Bb]earer |[Bb]asic )?([^ ]*)" text;
      word = if bare == null then "" else elemAt bare 1;
    in
    stringLength text <= 4096
    && stringLength word >= 20
    && match "[.]/.*" word == null
    && match "[A-Za-z0-9_+=.:][A-Za-z0-9_+/=.:-]*" word != null
    && occurs "[0-9]" word
    && occurs "[A-Za-z]" word;

  # Where in a value something looks like a secret: a list of `{ option; reason; }`.
  secretsIn =
    let
      walk =
        option: name: value:
        if isString value then
          if issued value then
            [
              {
                inherit option;
                reason = "the value has the form of an issued key";
              }
            ]
          else if keyish name && keylike value then
            [
              {
                inherit option;
                reason = "`${name}` holds a long string that looks like a key";
              }
            ]
          else
            [ ]
        else if isList value then
          lib.concatLists (lib.imap0 (index: walk "${option}.${toString index}" name) value)
        else if isAttrs value && (value.type or null) != "derivation" then
          if any issued (attrNames value) then
            # A key given as a name, by mistake of the two sides of `=`; it must not be printed.
            [
              {
                inherit option;
                reason = "a name in it has the form of an issued key";
              }
            ]
          else
            concatMap (child: walk "${option}.${child}" child value.${child}) (attrNames value)
        else
          [ ];
    in
    walk;

  # The value, unless something in it looks like a secret. The message names the option and never
  # the value, because evaluation errors end up in logs.
  refuseSecrets =
    option: value:
    let
      found = secretsIn option "" value;
      first = elemAt found 0;
    in
    if found == [ ] then
      value
    else
      throw ''
        kli: `${first.option}` looks like a secret: ${first.reason}.
        What a Nix configuration holds is copied to the store, where every user of the machine can read it.
        Take it out, replace the key if it is a real one, and say where to find it instead: with `keyEnv`,
        `keyFile` or `keyCommand` of the provider, or in the environment.'';
in
{
  inherit
    keys
    providerKeys
    render
    secretsIn
    refuseSecrets
    ;
  # Whether a text by itself could be a key, whatever its name.
  couldBeKey = text: isString text && (issued text || keylike text);
  json = sandbox: toJSON (render sandbox);
}
