//! Reads a plan as the kernel would: what the launcher puts in place in its own namespace, then
//! bubblewrap's mounts in their order. Each covers what is seen below its destination at that moment.

use super::*;

/// What the inside has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    /// Nothing of the host: an empty file or directory, or nothing.
    Hidden,
    /// A file system of the jail's own.
    Own,
    /// The host's, read-only.
    ReadOnly,
    /// The host's, writable.
    Writable,
}

impl View {
    /// How much of the host it gives.
    pub(super) fn rights(self) -> u8 {
        match self {
            Self::Hidden | Self::Own => 0,
            Self::ReadOnly => 1,
            Self::Writable => 2,
        }
    }

    fn read_only(self) -> Self {
        self.min(Self::ReadOnly)
    }
}

/// What bubblewrap finds at a path.
fn outside(plan: &Plan, path: &Path) -> View {
    let depth = |path: &Path| path.components().count();
    // As `namespace::hold` does it.
    let mut steps: Vec<(usize, u8, &Path)> = Vec::new();
    steps.extend(plan.overlays.iter().map(|it| (depth(&it.anchor), 0, it.anchor.as_path())));
    steps.extend(plan.rebinds.iter().map(|it| (depth(&it.path), 1, it.path.as_path())));
    for mount in &plan.mounts {
        match mount.kind {
            Kind::Pin => steps.push((depth(&mount.destination), 2, &mount.destination)),
            Kind::Protect => steps.push((depth(&mount.destination), 3, &mount.destination)),
            _ => {}
        }
    }
    steps.sort_by_key(|(depth, rank, _)| (*depth, *rank));
    let mut view = View::Writable;
    for (_, rank, at) in steps {
        if !path.starts_with(at) {
            continue;
        }
        view = match rank {
            0 => {
                let overlay = plan.overlays.iter().find(|it| it.anchor == at).unwrap();
                let covers = |name: &Name| {
                    path.starts_with(&name.path) && !matches!(name.kind, NameKind::Link(_))
                };
                if overlay.names.iter().any(covers) { View::Hidden } else { View::ReadOnly }
            }
            1 => View::Writable,
            2 => view,
            _ => view.read_only(),
        };
    }
    let masked = plan
        .mounts
        .iter()
        .any(|mount| mount.kind.is_mask() && path.starts_with(&mount.destination));
    if masked { View::Hidden } else { view }
}

/// What the inside has at a path.
pub(super) fn view(plan: &Plan, path: impl AsRef<Path>) -> View {
    let path = path.as_ref();
    let mut view = View::Own;
    for mount in plan.mounts.iter().filter(|mount| path.starts_with(&mount.destination)) {
        view = match &mount.kind {
            Kind::ReadOnly => outside(plan, path).read_only(),
            Kind::ReadOnlyFrom(_) => View::ReadOnly,
            Kind::Writable => outside(plan, path),
            // Made before bubblewrap, so every bind has it.
            Kind::Protect | Kind::Pin | Kind::MaskFile | Kind::MaskDirectory | Kind::Seal
            // Awaited only, never among the mounts.
            | Kind::EmptyFile | Kind::EmptyDirectory | Kind::Forbidden | Kind::Worktrees => view,
            Kind::Tmpfs { .. }
            | Kind::WritableFrom(_)
            | Kind::Dev
            | Kind::Proc
            | Kind::Directory { .. }
            | Kind::Link(_)
            | Kind::Marker => View::Own,
        };
    }
    view
}

/// Whether the inside can give what is at `path` another name, with all that is below it, or remove it.
pub(super) fn can_rename(plan: &Plan, path: &Path) -> bool {
    let Some(above) = path.parent() else { return false };
    // A name on which a mount stands is busy. What is awaited and there is held as if it were mounted.
    let held = |mount: &Mount| mount.destination == path;
    view(plan, above) == View::Writable
        && !plan.mounts.iter().any(held)
        && !plan.awaited.iter().any(|mount| mount.kind.is_held() && held(mount))
}
