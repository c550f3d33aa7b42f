//! The compiled functions of an interpreter, kept for the next build of a connector.
//!
//! A component in Python or JavaScript is an interpreter and a script, and compiling it takes many seconds. The next
//! build changes the script, which is data, and nearly all functions stay as they were. The compiler finds these
//! functions in a *pack*: one entry of the cache with all functions of the last compilation. It looks a function up by
//! the SHA-256 of all that its code depends on, so a pack can save time and cannot change code.
//!
//! Functions of a pack become native code, so a pack is authenticated as compiled connectors are, see [`crate::cache`].
//! A pack that does not authenticate, or does not parse, is as good as none.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{CacheStore, Config, Engine};

use crate::cache::{Cache, PACK};

/// Smaller components are compiled without a pack: hashing each function would take longer than it saves, as nobody
/// builds an interpreter of this size. The largest connector in Rust here has 9 MB, the smallest interpreter 14 MB.
pub const LARGE_BYTES: usize = 10 << 20;
/// A pack of CPython and the adapter around it takes an eighth of this.
const MAX_PACK_BYTES: usize = 256 << 20;
/// The pack is written again if at least one in this many functions is new.
const REWRITE_ONE_IN: usize = 20;

const KEY_BYTES: usize = 32;
const LEN_BYTES: usize = 4;
/// The format of a pack: its functions, each as a key, the length of the code (u32, little-endian), and the code.
const FORMAT: &str = "functions 1: ";

type Key = [u8; KEY_BYTES];

/// The name of the pack for a component under these settings. None if the component lacks code or cannot be parsed.
///
/// The largest code section of a component is the interpreter's. A new build of the same connector does not change it.
/// So each interpreter has a pack, and the pack of an older interpreter ages in the cache. The index of its module
/// counts too: the keys of functions depend on it, and sources and destinations have different ones.
pub fn pack_name(wasm: &[u8], compatibility: u64, settings: &str) -> Option<String> {
    let (module, code) = largest_code(wasm)?;
    let code = blake3::hash(code);
    let settings = format!("{FORMAT}module {module}: {settings}");
    let name = Cache::name(code.as_bytes(), compatibility, &settings);
    Some(name + PACK)
}

/// Compiles a component with the functions in a pack, and keeps its functions there. Gives what
/// [`Engine::precompile_component`] of an engine with this configuration gives.
///
/// # Errors
/// If the compiler refuses the component.
pub fn compile(
    config: Config,
    cache: &Cache,
    pack: &str,
    wasm: &[u8],
) -> wasmtime::Result<Vec<u8>> {
    let known = cache.copy(pack).unwrap_or_default();
    let functions = Arc::new(Functions::of(known, MAX_PACK_BYTES));
    let code = functions.compile(config, wasm)?;
    if let Some(written) = functions.pack() {
        // A cache that cannot be written costs time at the next build and nothing else.
        let _ = cache.put(pack, &written);
    }
    Ok(code)
}

/// Functions that the compiler looks up, and those that it adds.
struct Functions {
    pack: Vec<u8>,
    known: HashMap<Key, Known>,
    new: Mutex<New>,
    max_bytes: usize,
}

/// A function in the pack.
struct Known {
    code: Range<usize>,
    used: AtomicBool,
}

#[derive(Default)]
struct New {
    functions: HashMap<Key, Vec<u8>>,
    /// In a pack.
    bytes: usize,
}

impl Functions {
    /// The functions of a pack, and none of a malformed pack. The next pack has at most `max_bytes`.
    fn of(pack: Vec<u8>, max_bytes: usize) -> Self {
        Self {
            known: parse(&pack).unwrap_or_default(),
            pack,
            new: Mutex::default(),
            max_bytes,
        }
    }

    fn compile(self: &Arc<Self>, mut config: Config, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
        config.enable_incremental_compilation(Arc::clone(self) as Arc<dyn CacheStore>)?;
        Engine::new(&config)?.precompile_component(wasm)
    }

    /// The functions that were used or added. None if so few were added that they are not worth the writing.
    fn pack(&self) -> Option<Vec<u8>> {
        let new = self.added();
        let kept: Vec<_> = self
            .known
            .iter()
            .filter(|(key, known)| {
                known.used.load(Ordering::Relaxed) && !new.functions.contains_key(*key)
            })
            .map(|(key, known)| (key, &self.pack[known.code.clone()]))
            .collect();
        let all = kept.len() + new.functions.len();
        if new.functions.len() * REWRITE_ONE_IN < all.max(1) {
            return None;
        }
        let mut pack = Vec::new();
        let added = new.functions.iter().map(|(key, code)| (key, &code[..]));
        for (key, code) in kept.into_iter().chain(added) {
            let Ok(len) = u32::try_from(code.len()) else {
                continue;
            };
            if pack.len() + entry_bytes(code) <= self.max_bytes {
                pack.extend_from_slice(key);
                pack.extend_from_slice(&len.to_le_bytes());
                pack.extend_from_slice(code);
            }
        }
        Some(pack)
    }

    fn added(&self) -> MutexGuard<'_, New> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        if let Some(known) = self.known.get(key) {
            known.used.store(true, Ordering::Relaxed);
            return Some(Cow::Borrowed(&self.pack[known.code.clone()]));
        }
        // Half of the functions that componentize-py makes are equal to others of the same component.
        self.added().functions.get(key).cloned().map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], code: Vec<u8>) -> bool {
        let Ok(key) = Key::try_from(key) else {
            return false;
        };
        let mut new = self.added();
        let bytes = new.bytes + entry_bytes(&code);
        if bytes > self.max_bytes {
            return false;
        }
        // Two threads may have compiled equal functions at the same time.
        if new.functions.insert(key, code).is_none() {
            new.bytes = bytes;
        }
        true
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}

fn entry_bytes(code: &[u8]) -> usize {
    KEY_BYTES + LEN_BYTES + code.len()
}

/// Where the functions of a pack are. None if it does not end with one.
fn parse(pack: &[u8]) -> Option<HashMap<Key, Known>> {
    let mut known = HashMap::new();
    let mut rest = pack;
    while !rest.is_empty() {
        let (key, after) = rest.split_first_chunk::<KEY_BYTES>()?;
        let (len, after) = after.split_first_chunk::<LEN_BYTES>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let start = pack.len() - after.len();
        rest = after.get(len..)?;
        let function = Known {
            code: start..start + len,
            used: AtomicBool::new(false),
        };
        known.insert(*key, function);
    }
    Some(known)
}

/// The content of the largest code section of a component's modules, and how many modules come before it.
fn largest_code(wasm: &[u8]) -> Option<(usize, &[u8])> {
    /// Sections of a component that hold a module or a component.
    const NESTED: [u8; 2] = [1, 4];
    /// The section of a module that holds its code.
    const CODE: u8 = 10;
    let mut largest: Option<(usize, &[u8])> = None;
    let mut modules = 0;
    // The unread rest of each nested binary.
    let mut open = vec![binary(wasm)?];
    while let Some((is_component, rest)) = open.pop() {
        let Some((id, after)) = rest.split_first() else {
            modules += usize::from(!is_component);
            continue;
        };
        let (len, after) = leb128(after)?;
        let (section, after) = after.split_at_checked(len)?;
        open.push((is_component, after));
        if is_component && NESTED.contains(id) {
            open.push(binary(section)?);
        } else if !is_component
            && *id == CODE
            && largest.is_none_or(|(_, code)| section.len() > code.len())
        {
            largest = Some((modules, section));
        }
    }
    largest
}

/// Whether it is a component, and its sections.
fn binary(wasm: &[u8]) -> Option<(bool, &[u8])> {
    // They follow the magic number and the version, which is 1 of a component.
    Some((*wasm.get(6)? == 1, wasm.get(8..)?))
}

/// A number of at most 32 bits, seven in each byte, and what follows it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(number).ok()?, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A component with one module, which is given as text.
    pub(crate) fn component_of(module: &str) -> Vec<u8> {
        nested(1, &wat::parse_str(module).unwrap())
    }

    /// A component with one section, which holds a module or a component.
    fn nested(section: u8, binary: &[u8]) -> Vec<u8> {
        let len = binary.len();
        let len = [0, 7, 14].map(|bits| 0x80 | (len >> bits & 0x7f) as u8);
        let header = b"\0asm\x0d\0\x01\0";
        [header, &[section][..], &len, &[0], binary].concat()
    }

    /// A component whose module has different functions, some with calls, tables and constants in memory. `more` comes
    /// before the functions, and `data` is not code.
    fn component(more: &str, data: &str) -> Vec<u8> {
        let mut functions = String::new();
        for n in 0..60 {
            functions += &format!(
                "(func $f{n} (param i32) (result i32)
                   (if (result i32) (i32.lt_u (local.get 0) (i32.const {n}))
                     (then (call $f{next} (i32.load offset={n} (local.get 0))))
                     (else (call_indirect (type $t) (local.get 0) (i32.const {n})))))
                 (func $g{n} (param f64) (result f64)
                   (global.set $global (i32.const {n}))
                   (f64.mul (f64.add (local.get 0) (f64.const {n}.5)) (f64.const 1.25e100)))\n",
                next = (n + 1) % 60,
            );
        }
        let text = format!(
            "(module
               (type $t (func (param i32) (result i32)))
               (memory 1) (table 60 funcref) (global $global (mut i32) (i32.const 0))
               {more} {functions}
               (data (i32.const 0) \"{data}\"))"
        );
        component_of(&text)
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache"), &dir.path().join("key")).unwrap();
        (dir, cache)
    }

    /// The code from an engine that keeps no functions.
    fn plain(wasm: &[u8]) -> Vec<u8> {
        let engine = Engine::new(&config()).unwrap();
        let code = wasmtime::component::Component::new(&engine, wasm).unwrap();
        code.serialize().unwrap()
    }

    fn config() -> Config {
        crate::load::engine_config()
    }

    fn of(pack: &[u8]) -> Arc<Functions> {
        Arc::new(Functions::of(pack.to_vec(), MAX_PACK_BYTES))
    }

    /// Compiles it with a pack. Gives how many functions the pack had, how many had to be compiled, and the next pack.
    ///
    /// One thread compiles, and the host calls no function. After a trampoline from the host, cranelift forgets to
    /// clear a part of its hash input for the next function. Between threads, chance decides which function is next.
    /// So some in a hundred functions of an interpreter are compiled although they did not change.
    fn compiled(pack: &[u8], wasm: &[u8]) -> (usize, usize, Option<Vec<u8>>) {
        let mut config = config();
        config.parallel_compilation(false);
        let functions = of(pack);
        let code = functions.compile(config, wasm).unwrap();
        assert!(code == plain(wasm), "other code than without a pack");
        let used = functions.known.values();
        let used = used.filter(|known| known.used.load(Ordering::Relaxed));
        let counts = (used.count(), functions.added().functions.len());
        (counts.0, counts.1, functions.pack())
    }

    #[test]
    fn the_second_compilation_finds_every_function() {
        let wasm = component("", "one");
        let (used, all, pack) = compiled(&[], &wasm);
        assert!(used == 0 && all >= 120, "{used} used, {all} new");
        let pack = pack.unwrap();
        // The same component, and one with another script.
        for next in [&wasm, &component("", "two")] {
            let (used, new, rewritten) = compiled(&pack, next);
            assert_eq!((used, new, rewritten.is_some()), (all, 0, false));
        }
    }

    #[test]
    fn threads_with_a_pack_compile_the_same_code() {
        let called = "(elem (i32.const 0) $f0 $f1 $f2) (export \"g\" (func $g0))";
        let one = component(called, "one");
        let two = component(&format!("(func) {called}"), "two");
        let mut pack = Vec::new();
        for wasm in [&one, &one, &two, &one] {
            let functions = of(&pack);
            assert!(functions.compile(config(), wasm).unwrap() == plain(wasm));
            pack = functions.pack().unwrap_or(pack);
        }
    }

    #[test]
    fn functions_are_found_where_others_stand_before_them() {
        let (_, all, pack) = compiled(&[], &component("", ""));
        let more = "(func (param i64) (result i64) (i64.mul (local.get 0) (i64.const 77)))";
        let (used, new, rewritten) = compiled(&pack.unwrap(), &component(more, ""));
        assert!(used >= all * 9 / 10 && new >= 1, "{used} of {all}, {new}");
        // One of more than a hundred: not worth the writing.
        assert!(rewritten.is_none());
    }

    #[test]
    fn a_pack_holds_what_the_last_compilation_used() {
        let more: String = (100..130)
            .map(|n| format!("(func (result i64) (i64.const {n}))"))
            .collect();
        let first = component(&more, "");
        let (_, all, pack) = compiled(&[], &first);
        let second = component(&more.replace("i64", "f32"), "");
        let (used, new, pack) = compiled(&pack.unwrap(), &second);
        assert!(used >= 120 && new >= 30, "{used} used, {new} new");
        let pack = pack.unwrap();
        assert_eq!(parse(&pack).unwrap().len(), used + new);
        // The functions that only the first component had are gone.
        let (used, new, _) = compiled(&pack, &first);
        assert!(
            new >= 30 && used + new == all,
            "{used} used, {new} new of {all}"
        );
    }

    #[test]
    fn a_malformed_pack_is_ignored() {
        let wasm = component("", "");
        let (_, all, pack) = compiled(&[], &wasm);
        let pack = pack.unwrap();
        let first = pack[KEY_BYTES..][..LEN_BYTES].try_into().unwrap();
        let first = KEY_BYTES + LEN_BYTES + u32::from_le_bytes(first) as usize;
        let lengths = [1, KEY_BYTES - 1, KEY_BYTES, KEY_BYTES + 2, 40, first - 1];
        for len in lengths.into_iter().chain([first + 1, pack.len() - 1]) {
            assert!(parse(&pack[..len]).is_none(), "the first {len} bytes");
        }
        assert_eq!(parse(&pack[..first]).unwrap().len(), 1);
        let mut endless = pack.clone();
        endless[KEY_BYTES..][..LEN_BYTES].fill(0xff);
        for malformed in [&pack[..pack.len() - 1], &endless, &[7; 100]] {
            let (used, new, _) = compiled(malformed, &wasm);
            assert_eq!((used, new), (0, all));
        }
        // A function that the compiler cannot read is compiled, and replaced.
        let mut unreadable = pack.clone();
        unreadable[KEY_BYTES + LEN_BYTES..first].fill(0xff);
        assert_eq!(compiled(&unreadable, &wasm).1, 1);
    }

    #[test]
    fn a_pack_of_another_key_or_a_damaged_one_is_ignored() {
        let (dir, cache) = cache();
        let wasm = component("", "");
        let name = pack_name(&wasm, 1, "settings").unwrap();
        let code = compile(config(), &cache, &name, &wasm).unwrap();
        assert!(code == plain(&wasm));
        let functions = |cache: &Cache| parse(&cache.copy(&name).unwrap()).unwrap().len();
        assert!(functions(&cache) >= 120);

        let path = dir.path().join(format!("cache/{name}.cwasm"));
        let good = std::fs::read(&path).unwrap();
        let mut changed = good.clone();
        changed[good.len() / 2] ^= 1;
        let truncated = &good[..good.len() - 1];
        for bad in [&changed[..], truncated, &[]] {
            std::fs::write(&path, bad).unwrap();
            assert!(compile(config(), &cache, &name, &wasm).unwrap() == code);
            // It took nothing from the bad pack, so it wrote a whole one.
            assert!(functions(&cache) >= 120);
        }

        let other_key = dir.path().join("key2");
        let other = Cache::open(&dir.path().join("cache"), &other_key).unwrap();
        assert!(other.copy(&name).is_none());
        assert!(compile(config(), &other, &name, &wasm).unwrap() == code);
        assert!(functions(&other) >= 120);
    }

    #[test]
    fn a_pack_has_a_largest_size() {
        let wasm = component("", "");
        let functions = Arc::new(Functions::of(Vec::new(), 20_000));
        assert!(functions.compile(config(), &wasm).unwrap() == plain(&wasm));
        let pack = functions.pack().unwrap();
        assert!(
            (10_000..=20_000).contains(&pack.len()),
            "{} bytes",
            pack.len()
        );
        let functions = Functions::of(pack.clone(), 20_000);
        for known in functions.known.values() {
            known.used.store(true, Ordering::Relaxed);
        }
        for n in 0..100 {
            functions.insert(&[n; KEY_BYTES], vec![n; 150]);
        }
        let next = functions.pack().unwrap();
        assert!(next.len() <= 20_000, "{} bytes", next.len());
        // All known functions stay.
        let next = parse(&next).unwrap();
        assert!(functions.known.keys().all(|key| next.contains_key(key)));
        assert!(!functions.insert(b"too short to be a key", Vec::new()));
    }

    #[test]
    fn a_name_stands_for_an_interpreter_under_some_settings() {
        let name = |wasm: &[u8], compatibility, settings| pack_name(wasm, compatibility, settings);
        let wasm = component("", "one");
        let ours = name(&wasm, 1, "settings").unwrap();
        assert!(ours.ends_with(PACK));
        assert_eq!(name(&component("", "two"), 1, "settings").unwrap(), ours);
        let small = "(module (func (result i32) (i32.const 1)))";
        // The first module of a component in a component.
        let inside = nested(4, &wasm);
        assert_eq!(name(&inside, 1, "settings").unwrap(), ours);
        // Behind another module.
        let second = [component_of(small), inside[8..].to_vec()].concat();
        let others = [
            name(&wasm, 2, "settings"),
            name(&wasm, 1, "other"),
            name(&component_of(small), 1, "settings"),
            name(&component("(func)", ""), 1, "settings"),
            name(&second, 1, "settings"),
        ];
        for other in others {
            assert_ne!(other.unwrap(), ours);
        }
        assert_eq!(largest_code(&second).unwrap().0, 1);
    }

    #[test]
    fn a_component_that_cannot_be_parsed_has_no_pack() {
        let wasm = component("", "");
        assert!(largest_code(&wasm).is_some());
        assert!(largest_code(&wasm[..8]).is_none());
        for len in 0..wasm.len() {
            let found = largest_code(&wasm[..len]);
            assert!(
                found.is_none_or(|(_, code)| code.len() < wasm.len()),
                "{len}"
            );
        }
        let mut endless = wasm[..8].to_vec();
        endless.extend([1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);
        assert!(largest_code(&endless).is_none());
        endless[9..].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0]);
        assert!(largest_code(&endless).is_none());
    }

    #[test]
    fn kept_functions_do_not_affect_compatibility() {
        let engine = Engine::new(&config()).unwrap();
        let mut with = config();
        with.enable_incremental_compilation(of(&[])).unwrap();
        let with = Engine::new(&with).unwrap();
        assert_eq!(
            crate::load::compatibility(&engine),
            crate::load::compatibility(&with)
        );
    }
}
