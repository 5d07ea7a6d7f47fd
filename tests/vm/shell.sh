# Answers on the second serial line: a line `SECONDS BASE64-OF-A-COMMAND` gets the line
# `EXIT-CODE BASE64-OF-ITS-OUTPUT`. What a command says on standard error goes to the console.
line=/dev/ttyS1
stty -F $line raw -echo
exec 8<>$line
echo ready >&8
while read -r -u 8 limit encoded; do
  command=$(printf %s "$encoded" | base64 -d)
  code=0
  answer=$(timeout --kill-after=5 "$limit" bash -c "$command" </dev/null 8>&- | base64 -w 0; exit "${PIPESTATUS[0]}") || code=$?
  printf '%s %s\n' "$code" "$answer" >&8
done
