# `programs.kli` for NixOS, for all users of the machine: besides the package, the policy that binds
# every kli of it, and what the sandbox needs of the kernel.
{ kliFor }:
{
  _file = "kli#nixosModules.default";
  key = "kli#nixosModules.default";
  imports = [
    (import ./core.nix {
      inherit kliFor;
      install = systemPackages: { environment = { inherit systemPackages; }; };
      bindsMachine = true;
    })
    (
      {
        config,
        lib,
        pkgs,
        ...
      }:
      let
        cfg = config.programs.kli;
        spec = import ../nix/spec.nix { inherit lib; };
        confined = cfg.enable && cfg.sandbox != null;

        # A switch of the kernel, as the configuration sets it; both ways to write its name exist.
        sysctl =
          name:
          config.boot.kernel.sysctl.${name}
            or (lib.attrByPath (lib.splitString "." name) null config.boot.kernel.sysctl);
        isOff = name: lib.elem (sysctl name) [
          false
          0
          "0"
        ];
        needsUserNamespaces =
          option: repair:
          "programs.kli.sandbox needs user namespaces for ordinary users, and ${option} forbids them; ${repair}, or set programs.kli.sandbox to null";
        isHardened = config.boot.kernelPackages.kernel.isHardened or false;
      in
      {
        config = lib.mkMerge [
          (lib.mkIf (cfg.enable && cfg.policy != { }) {
            # Where a kli is installed, the file that it has checked.
            environment.etc."kli/policy.json".source =
              if cfg.finalPackage != null then
                "${cfg.finalPackage.bakedConfig}/policy.json"
              else
                pkgs.writeText "policy.json" (
                  builtins.toJSON (spec.refuseSecrets "programs.kli.policy" cfg.policy)
                );
          })
          (lib.mkIf confined {
            assertions = [
              {
                assertion = config.security.allowUserNamespaces;
                message = needsUserNamespaces "security.allowUserNamespaces = false" "set it to true";
              }
              {
                # `security.allowUserNamespaces` sets it, and says so itself.
                assertion = !config.security.allowUserNamespaces || !isOff "user.max_user_namespaces";
                message = needsUserNamespaces ''boot.kernel.sysctl."user.max_user_namespaces" = 0'' "take it out";
              }
              {
                assertion = !isOff "kernel.unprivileged_userns_clone";
                message = needsUserNamespaces ''boot.kernel.sysctl."kernel.unprivileged_userns_clone" = 0'' "set security.unprivilegedUsernsClone to true";
              }
              {
                # A hardened kernel has the switch, and it is off unless something sets it.
                assertion =
                  !isHardened
                  || sysctl "kernel.unprivileged_userns_clone" != null
                  || config.security.unprivilegedUsernsClone;
                message = needsUserNamespaces "the hardened kernel" "set security.unprivilegedUsernsClone to true";
              }
            ];
          })
          # AppArmor can keep user namespaces from programs without a profile
          # (kernel.apparmor_restrict_unprivileged_userns). The process that makes the first one is the
          # launcher; what it starts needs no profile of its own.
          (lib.mkIf (confined && config.security.apparmor.enable) {
            security.apparmor.policies.kli-sandbox.profile = ''
              abi <abi/4.0>,
              include <tunables/global>

              profile kli-sandbox ${(kliFor pkgs).kli-sandbox}/bin/kli-sandbox flags=(unconfined) {
                userns,
              }
            '';
          })
        ];
      }
    )
  ];
}
