//! The launcher's binary: `run | check | explain`. Everything is in `kli::sandbox`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kli::sandbox::command::main()
}

/// Plans with a thousand names take half as long as with musl's own, which is made to be small.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// What the standard library calls of an unwinder (Itanium C++ ABI, exception handling, 1.2 to 1.6). Where a
/// panic aborts, nothing unwinds, and a backtrace would be the only caller: with a walk that ends at
/// once the linker leaves out the unwinder and all that names the steps of a walk, a quarter of the
/// program and, as a library, a part of each start.
#[cfg(panic = "abort")]
mod unwinder {
    #![expect(unsafe_code, reason = "the names are the unwinder's")]

    use std::ffi::c_int;

    /// `_URC_END_OF_STACK`.
    const END_OF_STACK: c_int = 5;

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Backtrace() -> c_int {
        END_OF_STACK
    }

    macro_rules! never {
        ($($name:ident)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> ! {
                std::process::abort()
            }
        )*};
    }

    never! {
        _Unwind_DeleteException _Unwind_FindEnclosingFunction _Unwind_GetCFA _Unwind_GetDataRelBase
        _Unwind_GetIP _Unwind_GetIPInfo _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart
        _Unwind_GetTextRelBase _Unwind_RaiseException _Unwind_Resume _Unwind_SetGR _Unwind_SetIP
    }
}
