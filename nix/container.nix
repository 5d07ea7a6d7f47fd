# The image of plain kli: the container is the boundary there, so no launcher comes along. It runs as
# an ordinary user, and as whichever one the caller names: the home and `/tmp` are everybody's.
{ pkgs, kli }:
let
  id = "1000";
in
pkgs.dockerTools.buildLayeredImage {
  name = "kli";
  tag = kli.version;
  # What kli calls (bash and git), and what its commands expect of any system.
  contents = [
    kli
    pkgs.bashInteractive
    pkgs.coreutils
    pkgs.diffutils
    pkgs.findutils
    pkgs.git
    pkgs.gnugrep
    pkgs.gnused
  ];
  extraCommands = ''
    mkdir -p etc home/kli tmp workspace
    chmod 1777 home/kli tmp workspace
    echo 'kli:x:${id}:${id}:kli:/home/kli:/bin/bash' > etc/passwd
    echo 'kli:x:${id}:' > etc/group
  '';
  config = {
    Entrypoint = [ "/bin/kli" ];
    WorkingDir = "/workspace";
    User = "${id}:${id}";
    Env = [
      "HOME=/home/kli"
      "PATH=/bin"
      "LANG=C.UTF-8"
      "SSL_CERT_FILE=${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt"
    ];
    Labels = {
      "org.opencontainers.image.title" = "kli";
      "org.opencontainers.image.version" = kli.version;
      "org.opencontainers.image.licenses" = "MIT";
    };
  };
}
