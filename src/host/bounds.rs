//! Bounds of one thread that runs foreign code inside the process: how much memory it may hold and
//! how deep its stack may get. It must not know what the code is.
//!
//! The engine of `eval` is native code: an allocation that fails and a stack that is full would end
//! the whole process. So the allocator looks first. A bounded thread that is about to go past either
//! bound is *frozen*: it stops for good where it stands, holding what it has, and the process goes
//! on without it. [`Bounds::frozen`] tells whoever waits for it. A fault on the thread's guard page,
//! which recursion without any allocation reaches, ends the same way.
//!
//! Below the hard bound there is a soft one, which freezes nothing: [`Bounds::is_over`] says that it
//! was passed, and the code can still be stopped in an orderly way.

#![expect(
    unsafe_code,
    reason = "an allocator and a signal handler have no safe form; each block says why it holds"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering},
    },
};

/// What must be left of the stack whenever memory is asked for, in bytes: more than any frame
/// between two allocations needs.
const HEADROOM: usize = 1 << 20;

/// How far below its end a fault still counts as one of the stack, in bytes: the guard page, and
/// frames that step over it.
const BELOW: usize = 1 << 20;

/// Why a thread was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// It asked for more memory than it may hold.
    Memory,
    /// Its stack was full.
    Stack,
}

/// The bounds of one thread, shared between it and whoever watches it.
#[derive(Debug)]
pub struct Bounds {
    soft: i64,
    hard: i64,
    held: AtomicI64,
    most: AtomicI64,
    frozen: AtomicU8,
    stack_end: AtomicUsize,
}

thread_local! {
    static OWN: Cell<*const Bounds> = const { Cell::new(ptr::null()) };
}

impl Bounds {
    /// Returns bounds in bytes of memory: past `soft` [`Bounds::is_over`] holds, past `hard` the
    /// thread freezes.
    pub fn new(soft: u32, hard: u32) -> Arc<Self> {
        Arc::new(Self {
            soft: soft.into(),
            hard: hard.into(),
            held: AtomicI64::new(0),
            most: AtomicI64::new(0),
            frozen: AtomicU8::new(0),
            stack_end: AtomicUsize::new(0),
        })
    }

    /// Puts the calling thread, whose stack has `stack` bytes, under these bounds until it ends.
    /// Freed memory of another thread counts for this one, so the sum may fall short of what it
    /// holds, never by more than others allocated.
    pub fn enter(self: &Arc<Self>, stack: usize) {
        let here = 0_u8;
        let top = ptr::from_ref(&here).addr();
        self.stack_end.store(top.saturating_sub(stack), Ordering::Relaxed);
        listen_for_faults();
        // Kept for ever: the thread may freeze, and is then never left.
        let own = Arc::into_raw(Arc::clone(self));
        OWN.with(|cell| cell.set(own));
    }

    /// Starts a new measurement of the most that was held.
    pub fn begin(&self) {
        self.most.store(self.held.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Says whether more than the soft bound was held since [`Bounds::begin`].
    pub fn is_over(&self) -> bool {
        self.most.load(Ordering::Relaxed) > self.soft
    }

    /// Returns how many bytes are held now.
    pub fn held(&self) -> u64 {
        u64::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns why the thread was frozen, if it was.
    pub fn frozen(&self) -> Option<Frozen> {
        match self.frozen.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Frozen::Memory),
            _ => Some(Frozen::Stack),
        }
    }

    fn freeze(&self, why: Frozen) -> ! {
        let why = if why == Frozen::Memory { 1 } else { 2 };
        self.frozen.store(why, Ordering::Release);
        loop {
            // SAFETY: pause(2) takes nothing and only waits for a signal.
            unsafe { libc::pause() };
        }
    }

    /// Counts bytes that are about to be taken or were given back.
    fn count(&self, bytes: i64) {
        if bytes > 0 {
            let here = 0_u8;
            let left =
                ptr::from_ref(&here).addr().wrapping_sub(self.stack_end.load(Ordering::Relaxed));
            if left < HEADROOM {
                self.freeze(Frozen::Stack);
            }
        }
        let held = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held > self.hard && bytes > 0 {
            self.freeze(Frozen::Memory);
        }
        if held > self.most.load(Ordering::Relaxed) {
            self.most.store(held, Ordering::Relaxed);
        }
    }
}

/// The system's allocator, which counts for threads under [`Bounds`].
#[derive(Debug)]
pub struct Counted;

fn count(bytes: i64) {
    // At the very end of a thread its locals are gone; nothing foreign runs then.
    let own = OWN.try_with(Cell::get).unwrap_or(ptr::null());
    if !own.is_null() {
        // SAFETY: `enter` put a pointer there that it keeps alive for ever.
        unsafe { (*own).count(bytes) };
    }
}

fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every call is handed to the system's allocator as it came; counting touches no memory that
// is allocated, and does not unwind.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        count(size(new).saturating_sub(size(layout.size())));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// What a fault led to before: the runtime's own handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn listen_for_faults() {
    BEFORE.get_or_init(|| {
        // SAFETY: both structures are plain data for which zeroes are a valid value; the handler
        // has the form that SA_SIGINFO asks for, and runs on the stack that the standard library
        // gives each of its threads for signals.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut own: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
            own.sa_sigaction = handler as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &raw const own, &raw mut before);
            before
        }
    });
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let own = OWN.try_with(Cell::get).unwrap_or(ptr::null());
    if !own.is_null() {
        // SAFETY: the kernel passes a valid structure; `own` is kept alive for ever.
        let (bounds, at) = unsafe { (&*own, (*info).si_addr().addr()) };
        let end = bounds.stack_end.load(Ordering::Relaxed);
        if at >= end.saturating_sub(BELOW) && at < end.saturating_add(HEADROOM) {
            bounds.freeze(Frozen::Stack);
        }
    }
    // Not ours: the instruction faults again, and what was there before decides.
    if let Some(before) = BEFORE.get() {
        // SAFETY: the structure is the one that the kernel gave.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
}
