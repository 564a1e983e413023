//! Tables from shared libraries, with the functions of `icefield_peer.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libloading::Library;

use crate::{Error, Found, Kind, Operation, Peer};

type NameFn = unsafe extern "C" fn() -> *const c_char;
type CreateFn = unsafe extern "C" fn(u64, *const c_char) -> *mut c_void;
type DestroyFn = unsafe extern "C" fn(*mut c_void);
type ThreadFn = unsafe extern "C" fn(*mut c_void, c_int, c_int);
type GetFn = unsafe extern "C" fn(*mut c_void, *const u64, u64, *mut u64) -> u64;
type PairsFn = unsafe extern "C" fn(*mut c_void, *const u64, *const u64, u64) -> u64;
type KeysFn = unsafe extern "C" fn(*mut c_void, *const u64, u64) -> u64;

#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub create: CreateFn,
    pub destroy: DestroyFn,
    pub thread: Option<ThreadFn>,
    pub insert: PairsFn,
    pub get: GetFn,
    pub update: Option<PairsFn>,
    pub remove: Option<KeysFn>,
    pub insdel: Option<KeysFn>,
}

/// A shared library. It is never unloaded, because threads may run its thread-exit code later.
pub(crate) struct Loaded {
    pub name: String,
    pub functions: Functions,
}

/// Loads the shared library at `path`. Its functions are assumed to have the types in `icefield_peer.h`.
///
/// # Errors
/// [`Error::NotLoaded`], [`Error::NoSymbol`], [`Error::BadName`].
///
/// ```
/// assert!(icefield_peers::load("/no/such/library.so".as_ref()).is_err());
/// ```
pub fn load(path: &Path) -> Result<Box<dyn Kind>, Error> {
    // Make the path absolute: the loader would search the system's library directories for a bare file name.
    let file = path.canonicalize().map_err(|error| not_loaded(path, &error))?;
    // SAFETY: the library's initialisers run code that the user chose to run by naming the library.
    let library = unsafe { Library::new(&file) }.map_err(|error| not_loaded(path, &error))?;
    // SAFETY: `icefield_peer.h` declares these functions with these types.
    let (name, functions) = unsafe {
        let functions = Functions {
            create: required(&library, path, "icefield_peer_create")?,
            destroy: required(&library, path, "icefield_peer_destroy")?,
            thread: symbol(&library, "icefield_peer_thread"),
            insert: required(&library, path, "icefield_peer_insert")?,
            get: required(&library, path, "icefield_peer_get")?,
            update: symbol(&library, "icefield_peer_update"),
            remove: symbol(&library, "icefield_peer_remove"),
            insdel: symbol(&library, "icefield_peer_insdel"),
        };
        (symbol::<NameFn>(&library, "icefield_peer_name"), functions)
    };
    let name = match name {
        Some(name) => own_name(name),
        None => path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned(),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(Error::BadName { path: path.to_owned() });
    }
    std::mem::forget(library);
    Ok(Box::new(Loaded { name, functions }))
}

fn not_loaded(path: &Path, error: &dyn std::error::Error) -> Error {
    Error::NotLoaded { path: path.to_owned(), detail: error.to_string() }
}

/// Returns the name that the library gives itself, or an empty string if it is null or not UTF-8.
fn own_name(name: NameFn) -> String {
    // SAFETY: the header requires a string that stays valid, or null.
    let text = unsafe { name() };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default().to_owned()
}

/// Returns a function of the library, if it exists.
///
/// # Safety
/// `F` is the function's type, and the library stays loaded.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller guarantees the type.
    unsafe { library.get::<F>(name.as_bytes()).ok().map(|symbol| *symbol) }
}

/// Returns a function that every library must have.
///
/// # Safety
/// As for [`symbol`].
unsafe fn required<F: Copy>(
    library: &Library,
    path: &Path,
    name: &'static str,
) -> Result<F, Error> {
    // SAFETY: the caller guarantees the type.
    unsafe { symbol(library, name) }
        .ok_or_else(|| Error::NoSymbol { path: path.to_owned(), symbol: name })
}

impl Kind for Loaded {
    fn name(&self) -> &str {
        &self.name
    }

    fn offers(&self, operation: Operation) -> bool {
        match operation {
            Operation::Insert | Operation::Get => true,
            Operation::Put | Operation::Bytes => false,
            Operation::Update => self.functions.update.is_some(),
            Operation::Remove => self.functions.remove.is_some(),
            Operation::InsDel => self.functions.insdel.is_some(),
        }
    }

    fn create(&self, capacity: u64, dir: Option<&Path>) -> Result<Box<dyn Peer>, Error> {
        let not_made = || Error::NotMade(self.name.clone());
        let dir = dir.map(|dir| CString::new(dir.as_os_str().as_bytes())).transpose();
        let dir = dir.map_err(|_| not_made())?;
        let dir = dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr());
        // SAFETY: the call follows the header's contract; the string lives until it returns.
        let table = unsafe { (self.functions.create)(capacity, dir) };
        match table.is_null() {
            true => Err(not_made()),
            false => Ok(Box::new(Table { table, functions: self.functions })),
        }
    }
}

struct Table {
    table: *mut c_void,
    functions: Functions,
}

// SAFETY: the header allows calls from any thread, at the same time; the owner destroys the table once.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `create` made the table, and it is destroyed once.
        unsafe { (self.functions.destroy)(self.table) };
    }
}

impl Table {
    fn keys(&self, function: Option<KeysFn>, keys: &[u64]) -> u64 {
        // SAFETY: the array has the length that is passed.
        function.map_or(0, |call| unsafe { call(self.table, keys.as_ptr(), keys.len() as u64) })
    }

    fn pairs(&self, function: Option<PairsFn>, keys: &[u64], values: &[u64]) -> u64 {
        let (keys, values, count) = (keys.as_ptr(), values.as_ptr(), keys.len().min(values.len()));
        // SAFETY: both arrays have at least the length that is passed.
        function.map_or(0, |call| unsafe { call(self.table, keys, values, count as u64) })
    }
}

impl Peer for Table {
    fn thread(&self, index: usize, begins: bool) {
        if let Some(thread) = self.functions.thread {
            // SAFETY: the call follows the header's contract.
            unsafe { thread(self.table, index as c_int, c_int::from(begins)) };
        }
    }

    fn insert(&self, keys: &[u64], values: &[u64]) -> u64 {
        self.pairs(Some(self.functions.insert), keys, values)
    }

    fn get(&self, keys: &[u64]) -> Found {
        let mut sum = 0;
        // SAFETY: the array has the length that is passed; `sum` outlives the call.
        let hits = unsafe {
            (self.functions.get)(self.table, keys.as_ptr(), keys.len() as u64, &raw mut sum)
        };
        Found { hits, sum }
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> u64 {
        self.pairs(self.functions.update, keys, values)
    }

    fn remove(&self, keys: &[u64]) -> u64 {
        self.keys(self.functions.remove, keys)
    }

    fn insdel(&self, keys: &[u64]) -> u64 {
        self.keys(self.functions.insdel, keys)
    }
}
