//! The launcher's binary: `run | check | explain`. Everything is in `kli::sandbox`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kli::sandbox::command::main()
}

/// The allocator where the C library is musl, whose own takes a third of a start with a thousand hidden
/// names.
#[cfg(target_env = "musl")]
mod allocator {
    #![expect(unsafe_code, reason = "an allocator is unsafe by its interface")]

    use std::alloc::{GlobalAlloc, Layout};
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use dlmalloc::Dlmalloc;

    #[global_allocator]
    static ALLOCATOR: Locked =
        Locked { taken: AtomicBool::new(false), inner: UnsafeCell::new(Dlmalloc::new()) };

    /// The launcher has one thread, so nobody ever waits; a mutex of the C library would cost as much as
    /// the rest.
    struct Locked {
        taken: AtomicBool,
        inner: UnsafeCell<Dlmalloc>,
    }

    // SAFETY: `inner` is used by one thread at a time.
    unsafe impl Sync for Locked {}

    impl Locked {
        fn with<T>(&self, act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
            while self.taken.swap(true, Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // SAFETY: until the flag is taken back nobody else comes here.
            let done = act(unsafe { &mut *self.inner.get() });
            self.taken.store(false, Ordering::Release);
            done
        }
    }

    // SAFETY: `Dlmalloc` wants of its callers what this trait wants of its own.
    unsafe impl GlobalAlloc for Locked {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's layout.
            self.with(|inner| unsafe { inner.malloc(layout.size(), layout.align()) })
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller's memory and layout.
            self.with(|inner| unsafe { inner.free(memory, layout.size(), layout.align()) });
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's layout.
            self.with(|inner| unsafe { inner.calloc(layout.size(), layout.align()) })
        }

        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: the caller's memory, layout and size.
            self.with(|inner| unsafe { inner.realloc(memory, layout.size(), layout.align(), size) })
        }
    }
}

/// What the standard library calls of an unwinder (Itanium C++ ABI, exception handling, 1.2 to 1.6). Where a
/// panic aborts, nothing unwinds, and a backtrace would be the only caller: with a walk that ends at
/// once the linker leaves out the unwinder and all that names the steps of a walk, a quarter of the
/// program and, as a library, a part of each start.
#[cfg(panic = "abort")]
mod unwinder {
    #![expect(unsafe_code, reason = "the names are the unwinder's")]

    use std::ffi::{c_int, c_void};

    /// `_URC_END_OF_STACK`.
    const END_OF_STACK: c_int = 5;

    type Step = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

    // As its callers declare it: a program whose parts are optimised together must not call a function
    // by another type than it has.
    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Backtrace(_step: Step, _argument: *mut c_void) -> c_int {
        END_OF_STACK
    }

    macro_rules! never {
        ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $argument),*) $(-> $result)? {
                std::process::abort()
            }
        )*};
    }

    never! {
        _Unwind_DeleteException(*mut c_void);
        _Unwind_FindEnclosingFunction(*mut c_void) -> *mut c_void;
        _Unwind_GetCFA(*mut c_void) -> *const u8;
        _Unwind_GetDataRelBase(*mut c_void) -> *const u8;
        _Unwind_GetIP(*mut c_void) -> *const u8;
        _Unwind_GetIPInfo(*mut c_void, *mut c_int) -> *const u8;
        _Unwind_GetLanguageSpecificData(*mut c_void) -> *mut c_void;
        _Unwind_GetRegionStart(*mut c_void) -> *const u8;
        _Unwind_GetTextRelBase(*mut c_void) -> *const u8;
        _Unwind_RaiseException(*mut c_void) -> c_int;
        _Unwind_SetGR(*mut c_void, c_int, *const u8);
        _Unwind_SetIP(*mut c_void, *const u8);
    }

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume(_exception: *mut c_void) -> ! {
        std::process::abort()
    }
}
