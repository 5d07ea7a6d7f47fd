//! Starts bubblewrap and the program: the steps between the new process and its `exec`.
//!
//! The new process borrows this one's memory until then (`CLONE_VFORK`). A copy of it would cost more
//! than all the steps together, as the kernel has to write down every page twice.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

use super::super::fault;

/// One step.
type Step = Box<dyn FnMut() -> io::Result<()>>;

/// What is done in the new process before it executes its program.
#[derive(Default)]
pub(in crate::sandbox) struct Start {
    steps: Vec<Step>,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("steps", &self.steps.len()).finish()
    }
}

/// What the new process works with.
struct Child<'a> {
    steps: &'a mut [Step],
    program: *const libc::c_char,
    words: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    exec: Exec,
    /// What failed; zero for nothing.
    failed: i32,
}

/// How the program is found: `execve` takes a path, `execvpe` looks on the `PATH` of [`search_in`] and
/// hands a file without a known head to the shell.
///
/// [`search_in`]: super::search_in
type Exec = unsafe extern "C" fn(
    *const libc::c_char,
    *const *const libc::c_char,
    *const *const libc::c_char,
) -> libc::c_int;

/// Bytes of the stack until `exec`, besides the words, which `execvpe` may copy to it.
const STACK: usize = 64 << 10;

impl Start {
    /// Adds a step.
    ///
    /// # Safety
    /// It may do nothing but async-signal-safe calls that leave this process's memory as it is, and
    /// errors must come from [`io::Error::from_raw_os_error`].
    pub(super) unsafe fn before(&mut self, step: impl FnMut() -> io::Result<()> + 'static) {
        self.steps.push(Box::new(step));
    }

    /// Starts the file `program` with these words, the first of which is its name, and no environment,
    /// and returns its number.
    ///
    /// # Errors
    /// The first step that failed, or why the program cannot be executed. Nothing runs then.
    pub(in crate::sandbox) fn file(self, program: &CStr, words: &[CString]) -> io::Result<i32> {
        self.spawn(program, words, &[], libc::execve)
    }

    /// Starts the program that the first word means, looked up as [`search_in`] says.
    ///
    /// # Errors
    /// As of [`Self::file`].
    ///
    /// [`search_in`]: super::search_in
    pub(super) fn found(self, words: &[CString], environment: &[CString]) -> io::Result<i32> {
        let program = words.first().ok_or(io::ErrorKind::InvalidInput)?;
        self.spawn(program, words, environment, libc::execvpe)
    }

    fn spawn(
        mut self,
        program: &CStr,
        words: &[CString],
        environment: &[CString],
        exec: Exec,
    ) -> io::Result<i32> {
        let pointers = |words: &[CString]| {
            let ended = std::iter::once(std::ptr::null());
            words.iter().map(|word| word.as_ptr()).chain(ended).collect::<Vec<_>>()
        };
        let (words, environment) = (pointers(words), pointers(environment));
        let mut child = Child {
            steps: &mut self.steps,
            program: program.as_ptr(),
            words: words.as_ptr(),
            environment: environment.as_ptr(),
            exec,
            failed: 0,
        };
        let room = STACK + size_of_val(words.as_slice());
        let mut stack: Box<[MaybeUninit<u128>]> = Box::new_uninit_slice(room / size_of::<u128>());
        // SAFETY: this process stands still until the new one has executed its program or is gone, so
        // everything that is named outlives its use; the stack grows downwards from its end, which
        // is aligned as the machine wants it. One thread.
        let (pid, error) = unsafe {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let top = stack.as_mut_ptr_range().end.cast();
            let pid = libc::clone(run, top, flags, (&raw mut child).cast());
            let error = io::Error::last_os_error();
            fault::is_child(false);
            (pid, error)
        };
        if pid < 0 {
            return Err(error);
        }
        if child.failed == 0 {
            return Ok(pid);
        }
        // SAFETY: no memory is involved; the child is gone.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        Err(io::Error::from_raw_os_error(child.failed))
    }

    /// The steps for another way to start.
    #[cfg(test)]
    pub(in crate::sandbox) fn give_to(self, command: &mut std::process::Command) {
        use std::os::unix::process::CommandExt;
        for step in self.steps {
            // The steps of the tests are called by one thread.
            struct Shared(Step);
            // SAFETY: as said.
            unsafe impl Send for Shared {}
            // SAFETY: as said.
            unsafe impl Sync for Shared {}
            let mut step = Shared(step);
            // SAFETY: as of `before`.
            unsafe {
                command.pre_exec(move || {
                    let step = &mut step;
                    (step.0)()
                });
            }
        }
    }
}

/// The new process, until its program.
extern "C" fn run(child: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the caller's structure, which it does not touch meanwhile; async-signal-safe calls only,
    // and it is left by `exec` or by the end of this process.
    unsafe {
        fault::is_child(true);
        let child = &mut *child.cast::<Child<'_>>();
        for step in &mut *child.steps {
            if let Err(error) = step() {
                child.failed = error.raw_os_error().unwrap_or(libc::EIO);
                return 1;
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        (child.exec)(child.program, child.words, child.environment);
        child.failed = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        1
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        clippy::exit,
        reason = "a test starts itself anew to be at fault, and reads its code"
    )]

    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    const AT_FAULT: &str = "KLI_TEST_CHILD_AT_FAULT";

    /// Not a test of its own: started by the next one.
    #[test]
    fn a_process_whose_child_is_at_fault() {
        if std::env::var_os(AT_FAULT).is_none() {
            return;
        }
        fault::prepare();
        let inside = Command::new("sleep").arg("600").stderr(Stdio::null()).spawn().unwrap();
        let number = i32::try_from(inside.id()).unwrap();
        fault::is_monitor(number, false);
        let mut start = Start::default();
        // SAFETY: async-signal-safe calls only, until the fault.
        unsafe { start.before(|| panic!("a step")) };
        let pid = start.file(c"/bin/true", &[c"true".into()]).unwrap();
        let mut status = 0;
        // SAFETY: the status outlives the calls; no memory is involved else.
        let lives = unsafe {
            libc::waitpid(pid, &raw mut status, 0);
            let lives = libc::waitpid(number, std::ptr::null_mut(), libc::WNOHANG) == 0;
            libc::kill(number, libc::SIGKILL);
            libc::waitpid(number, std::ptr::null_mut(), 0);
            lives
        };
        std::process::exit(if lives { libc::WEXITSTATUS(status) - 100 } else { 1 });
    }

    #[test]
    fn a_fault_before_exec_ends_the_child_alone() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox::sys::start::tests::a_process_whose_child_is_at_fault"])
            .args(["--nocapture", "--test-threads", "1"])
            .env(AT_FAULT, "1")
            .output()
            .unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(25), "{words}");
        assert!(words.contains("(a step), nothing was started: please report it"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    }

    #[test]
    fn a_stop_that_waits_does_not_hold_the_monitor_and_with_it_the_launcher() {
        let (told, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            super::super::block_signals(&[libc::SIGTSTP]).unwrap();
            let mut start = Start::default();
            let key = || {
                // SAFETY: no memory is involved; blocked, so it waits.
                unsafe { libc::kill(libc::getpid(), libc::SIGTSTP) };
                Ok(())
            };
            // SAFETY: async-signal-safe calls only.
            unsafe { start.before(key) };
            super::super::monitor(&mut start, false, 2).unwrap();
            let words = [c"sh", c"-c", c"exit 7"].map(CString::from);
            let pid = start.file(c"/bin/sh", &words).unwrap();
            let mut status = 0;
            // SAFETY: the status outlives the call.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            told.send(libc::WEXITSTATUS(status)).unwrap();
        });
        assert_eq!(hears.recv_timeout(Duration::from_secs(20)), Ok(7));
    }
}
