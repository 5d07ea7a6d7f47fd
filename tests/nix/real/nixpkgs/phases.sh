# The phases of a build, after the documented meaning of nixpkgs' own: each has its `pre` and `post`,
# a function or text of that name comes first, then the hooks that packages have added. Read after
# PATH is set.
preConfigureHooks=() postConfigureHooks=() prePatchHooks=() postPatchHooks=()
preBuildHooks=() postBuildHooks=() preInstallHooks=() postInstallHooks=()
preCheckHooks=() postCheckHooks=() preUnpackHooks=() postUnpackHooks=()
# For speed; what is asked for by name stays.
export CARGO_PROFILE=${CARGO_PROFILE-dev}
export NIX_BUILD_CORES=${NIX_BUILD_CORES:-1}

call() {
	if declare -F "$1" >/dev/null; then "$1"; else eval "$1"; fi
}
runHook() {
	local -n added="${1}Hooks"
	local hook
	if declare -F "$1" >/dev/null; then "$1"; elif [ -n "${!1-}" ]; then eval "${!1}"; fi
	for hook in "${added[@]}"; do call "$hook"; done
}

# As nixpkgs has it: names that are not set are empty, and only errors stop.
set +u
for input in ${depsBuildBuild-} ${nativeBuildInputs-}; do
	if [ -f "$input/nix-support/setup-hook" ]; then . "$input/nix-support/setup-hook"; fi
done

if [ -n "${unpackPhase-}" ]; then
	eval "$unpackPhase"
	cd "${sourceRoot:-.}"
else
	cp -r --no-preserve=mode,ownership "$src" source
	cd source
fi
runHook prePatch
runHook postPatch
if [ -z "${dontConfigure-}" ] && [ -n "${configurePhase-}" ]; then eval "$configurePhase"; fi
if [ -z "${dontBuild-}" ] && [ -n "${buildPhase-}" ]; then eval "$buildPhase"; fi
if [ -n "${doCheck-}" ] && [ -n "${checkPhase-}" ]; then eval "$checkPhase"; fi
for phase in ${preInstallPhases-}; do eval "${!phase}"; done
if [ -n "${installPhase-}" ]; then eval "$installPhase"; fi
