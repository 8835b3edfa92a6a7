//! What stays read-only inside a writable grant: files that a person's own
//! programs run later, outside the box.

/// What is done with a name that exists in a writable grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Read-only, always.
    Cover,
    /// Read-only, unless granted by this very name.
    CoverUnlessNamed,
    /// A folder that holds such names: it may be written, but not moved away
    /// with what is covered in it. A file in its place is covered.
    Pin,
}

/// Paths below a grant. A folder that holds others comes before them.
const GUARDED: &[(&str, Guard)] = &[
    // Keys, and what lets others in.
    (".ssh", Guard::Cover),
    (".gnupg", Guard::Cover),
    // Shells read these when they start or end.
    (".bashrc", Guard::Cover),
    (".bash_profile", Guard::Cover),
    (".bash_login", Guard::Cover),
    (".bash_logout", Guard::Cover),
    (".bash_aliases", Guard::Cover),
    (".bash_completion", Guard::Cover),
    (".bashrc.d", Guard::Cover),
    (".inputrc", Guard::Cover),
    (".profile", Guard::Cover),
    (".zshrc", Guard::Cover),
    (".zshenv", Guard::Cover),
    (".zprofile", Guard::Cover),
    (".zlogin", Guard::Cover),
    (".zlogout", Guard::Cover),
    (".zshrc.d", Guard::Cover),
    (".oh-my-zsh", Guard::Cover),
    (".kshrc", Guard::Cover),
    (".mkshrc", Guard::Cover),
    (".cshrc", Guard::Cover),
    (".tcshrc", Guard::Cover),
    (".login", Guard::Cover),
    (".logout", Guard::Cover),
    (".pam_environment", Guard::Cover),
    // The session reads these when it starts.
    (".xprofile", Guard::Cover),
    (".xinitrc", Guard::Cover),
    (".xsession", Guard::Cover),
    (".xsessionrc", Guard::Cover),
    (".config", Guard::Pin),
    (".config/autostart", Guard::Cover),
    (".config/autostart-scripts", Guard::Cover),
    (".config/systemd", Guard::Cover),
    (".config/user-tmpfiles.d", Guard::Cover),
    (".config/environment.d", Guard::Cover),
    (".config/fish", Guard::Cover),
    (".config/zsh", Guard::Cover),
    (".config/plasma-workspace", Guard::Cover),
    (".config/git", Guard::Cover),
    (".local", Guard::Pin),
    (".local/share", Guard::Pin),
    (".local/share/systemd", Guard::Cover),
    (".local/share/user-tmpfiles.d", Guard::Cover),
    (".local/share/dbus-1", Guard::Cover),
    (".local/share/bash-completion", Guard::Cover),
    (".local/share/fish", Guard::Cover),
    // git runs what these say on the next commit, checkout or status. It finds
    // them by further files in the folder, one of which (`commondir`) is not
    // there as a rule, so that it could be made: hence the whole folder.
    (".gitconfig", Guard::Cover),
    (".git", Guard::CoverUnlessNamed),
    (".git/hooks", Guard::CoverUnlessNamed),
    (".git/config", Guard::CoverUnlessNamed),
    (".git/config.worktree", Guard::CoverUnlessNamed),
];

/// What a repository of git's without a working tree (a bare one) has in it, and
/// whether that is a folder: by these it is known, whatever it is called.
pub const BARE: &[(&str, bool)] = &[("HEAD", false), ("objects", true), ("refs", true)];

/// What is guarded in such a one, as in git's own folder elsewhere.
pub const IN_BARE: &[(&str, Guard)] = &[
    ("hooks", Guard::CoverUnlessNamed),
    ("config", Guard::CoverUnlessNamed),
    ("config.worktree", Guard::CoverUnlessNamed),
];

/// The guarded names below a writable folder granted at `at`: what the launcher
/// looks for in it. A grant of `/h/.config` has `autostart` where one of `/h`
/// has `.config/autostart`.
#[must_use]
pub fn guarded_names(at: &[u8]) -> Vec<(&'static str, Guard)> {
    let mut names = GUARDED.to_vec();
    for (name, guard) in GUARDED {
        for (cut, _) in name.match_indices('/') {
            let (Some(outer), Some(inner)) = (name.get(..cut), name.get(cut + 1..)) else {
                continue;
            };
            if ends_with_parts(at, outer) {
                names.push((inner, *guard));
            }
        }
    }
    names
}

/// Whether `at` is, or lies in, what no box may ever write.
pub(crate) fn never_writable(at: &[u8]) -> bool {
    let mut covered = GUARDED.iter().filter(|(_, guard)| *guard == Guard::Cover);
    covered.any(|(name, _)| {
        let ends = at
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(i, _)| i);
        ends.chain([at.len()])
            .any(|end| ends_with_parts(at.get(..end).unwrap_or_default(), name))
    })
}

fn ends_with_parts(path: &[u8], name: &str) -> bool {
    path.strip_suffix(name.as_bytes())
        .is_some_and(|before| before.ends_with(b"/"))
}
