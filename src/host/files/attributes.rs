//! Extended attributes of a file that is replaced: what its users gave it goes with its name.

use std::{
    ffi::{CStr, CString},
    os::fd::AsFd,
};

use rustix::{
    fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr},
    io::Errno,
};

/// The longest list of names and the longest value, in bytes (xattr(7)).
const MAX: usize = 64 * 1024;

/// The attribute that an access control list is kept in (acl(5)).
const ACL: &CStr = c"system.posix_acl_access";

/// Attributes that are right for one content only. The kernel takes the first one away at a write,
/// too.
const OF_THE_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// Copies the attributes of one file to another. Those of users and the access control list must go
/// along; the others do where the system lets them. A list that the new file has from its directory
/// goes when the old one has none.
pub(super) fn copy(from: &impl AsFd, to: &impl AsFd) -> rustix::io::Result<()> {
    let names = match list(from) {
        Ok(names) => names,
        // A file system without any.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    if !names.iter().any(|name| name.as_c_str() == ACL) {
        match fremovexattr(to, ACL) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut value = vec![0; MAX];
    for name in names {
        if OF_THE_CONTENT.contains(&name.as_bytes()) {
            continue;
        }
        let copied = fgetxattr(from, &*name, value.as_mut_slice()).and_then(|length| {
            fsetxattr(to, &*name, value.get(..length).unwrap_or_default(), XattrFlags::empty())
        });
        let is_theirs = name.as_bytes().starts_with(b"user.") || name.as_c_str() == ACL;
        match copied {
            Err(Errno::NODATA) | Ok(()) => {}
            Err(errno) if is_theirs => return Err(errno),
            Err(_) => {}
        }
    }
    Ok(())
}

fn list(from: &impl AsFd) -> rustix::io::Result<Vec<CString>> {
    let mut names = vec![0_u8; MAX];
    let length = flistxattr(from, names.as_mut_slice())?;
    let names = names.get(..length).unwrap_or_default();
    Ok(names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect())
}
