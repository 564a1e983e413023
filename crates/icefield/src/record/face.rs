//! The public methods and trait implementations of the tables of records (Dash, IcebergHT, Plush), written once. This
//! is a macro because inherent methods belong to one type.

/// Implements the public interface of a table. The table provides the private methods that the expansion calls. Dash
/// and IcebergHT get most of them from [`BatchEngine`](super::batch::BatchEngine); Plush defines the same methods
/// itself. Each table also defines `count`, `room`, `make_room_for`, `shrink`, `prefetch_key`, `stats_now`,
/// `scan_page`, `clear_all`, `read_batch`, `sync_now`, `check_all`, `salvage_to` and `backup_to`, and has the fields
/// `core.storage`, `core.table` and `recovery`. The literals document where tables differ: costs, and the paper's
/// sections.
macro_rules! public_face {
    (
        table: $table:ident,
        $(policy: $policy:ident: $bound:ident,)?
        public: $public:ident,
        design: $design:expr,
        options: $options:ident,
        get: $doc_get:literal,
        try_insert: $doc_try_insert:literal,
        remove: $doc_remove:literal,
        len: $doc_len:literal,
        capacity: $doc_capacity:literal,
        iter: $doc_iter:literal,
        scan: $doc_scan:literal,
        clear: $doc_clear:literal,
        reserve: $doc_reserve:literal,
        insert_batch: $doc_insert_batch:literal,
        sync: $doc_sync:literal,
        check: $doc_check:literal,
    ) => {
        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?> $table<K, V $(, $policy)?, Mapped> {
            /// Returns a builder for tables of this type.
            #[must_use]
            pub fn options() -> $options<K, V $(, $policy)?> {
                $options::default()
            }

            #[doc = concat!(" Makes a table at `path` with the default options; see ", "[`", stringify!($options), "::create`]", ".")]
            ///
            /// # Errors
            #[doc = concat!(" As ", "[`", stringify!($options), "::create`]", ".")]
            pub fn create(path: impl AsRef<Path>) -> Result<Self> {
                Self::options().create(path)
            }

            #[doc = concat!(" Opens the table at `path`; see ", "[`", stringify!($options), "::open`]", ".")]
            ///
            /// ```
            #[doc = concat!(" use icefield::", stringify!($public), ";")]
            /// let directory = tempfile::tempdir()?;
            /// let path = directory.path().join("orders.ice");
            #[doc = concat!(" let orders = ", stringify!($public), "::<u64, u64>::create(&path)?;")]
            /// orders.insert(7, 70)?;
            /// drop(orders); // A crash instead would do as well.
            #[doc = concat!(" let again = ", stringify!($public), "::<u64, u64>::open(&path)?;")]
            /// assert_eq!(again.get(7)?, Some(70));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// No other program may write to its files while it is open.
            ///
            /// # Errors
            #[doc = concat!(" As ", "[`", stringify!($options), "::open`]", ".")]
            pub fn open(path: impl AsRef<Path>) -> Result<Self> {
                Self::options().open(path)
            }

            #[doc = concat!(" Opens the table at `path`, or makes one; see ", "[`", stringify!($options), "::open_or_create`]", ".")]
            ///
            /// ```
            #[doc = concat!(" use icefield::{Error, ", stringify!($public), "};")]
            /// let directory = tempfile::tempdir()?;
            /// let path = directory.path().join("orders.ice");
            #[doc = concat!(" ", stringify!($public), "::<u64, u64>::open_or_create(&path)?.put(7, 70)?;")]
            #[doc = concat!(" let reader = ", stringify!($public), "::<u64, u64>::open_read_only(&path)?;")]
            /// assert_eq!(reader.get(7)?, Some(70));
            /// assert!(matches!(reader.put(8, 80), Err(Error::ReadOnly)));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// No other program may write to its files while it is open.
            ///
            /// # Errors
            #[doc = concat!(" As ", "[`", stringify!($options), "::open_or_create`]", ".")]
            pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
                Self::options().open_or_create(path)
            }

            #[doc = concat!(" Opens the table at `path` for reading; see ", "[`", stringify!($options), "::open_read_only`]", ".")]
            ///
            /// No other program may write to its files while it is open.
            ///
            /// # Errors
            #[doc = concat!(" As ", "[`", stringify!($options), "::open_read_only`]", ".")]
            pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
                Self::options().open_read_only(path)
            }

            #[doc = concat!(" Makes a table in anonymous memory; see ", "[`", stringify!($options), "::in_memory`]", ".")]
            ///
            /// # Errors
            #[doc = concat!(" As ", "[`", stringify!($options), "::in_memory`]", ".")]
            pub fn in_memory() -> Result<Self> {
                Self::options().in_memory()
            }
        }

        /// The operations, as documented for [`Table`] and [`Durable`]. Each is durable when it returns, unless the
        /// table was opened with a relaxed [`SyncMode`](crate::SyncMode).
        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?, M: Medium> $table<K, V $(, $policy)?, M> {
            #[doc = $doc_get]
            ///
            /// # Errors
            /// [`crate::Error::Corrupt`] if a file is damaged.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// assert_eq!(table.get(1)?, None);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn get(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
                self.get_owned(key)
            }

            /// Calls `f` with the value of `key` and returns the result, or `None` if the key is absent. No lock is
            /// held while `f` runs, so `f` may call the table. Dash and IcebergHT pass a copy of a value that is stored
            /// by reference (on the stack if it is short) and hold back no reclamation meanwhile. Plush passes its
            /// bytes in place, and reuses no chunk of the payload log that can be read now before `f` returns.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<str, [u8]>::in_memory()?;")]
            /// table.put("page", b"<html>")?;
            /// assert_eq!(table.get_with("page", |bytes| bytes.len())?, Some(6));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn get_with<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
                self.get_shown(key, f)
            }

            /// Returns `true` if `key` is present.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// assert!(table.contains(1)?);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn contains(&self, key: Arg<'_, K>) -> Result<bool> {
                self.contains_key(key)
            }

            #[doc = $doc_try_insert]
            ///
            /// # Errors
            /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`], [`crate::Error::KeyTooLong`],
            /// [`crate::Error::ValueTooLong`], [`crate::Error::Forked`], [`crate::Error::Corrupt`]; the table is
            /// unchanged.
            ///
            /// ```
            /// use icefield::Occupied;
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// assert_eq!(table.try_insert(1, 10)?, Ok(()));
            /// assert_eq!(table.try_insert(1, 20)?, Err(Occupied(10)));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn try_insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
                self.try_insert_one(key, value)
            }

            /// Inserts `key` or replaces its value; returns the previous value.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// assert_eq!(table.insert(1, 10)?, None);
            /// assert_eq!(table.insert(1, 20)?, Some(10));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
                self.write_one(key, value, WriteMode::Upsert)
            }

            /// Inserts `key` or replaces its value, without returning the previous value, which need not be read.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, str>::in_memory()?;")]
            /// table.put(1, "one")?;
            /// table.put(1, "uno")?;
            /// assert_eq!(table.get(1)?.as_deref(), Some("uno"));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn put(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
                self.put_one(key, value)
            }

            /// Replaces the value only if `key` is present; returns the previous value. About one flush, and one
            /// fence, if the record consists of words.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// assert_eq!(table.update(1, 20)?, None);
            /// assert!(!table.contains(1)?);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn update(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
                self.write_one(key, value, WriteMode::Update)
            }

            #[doc = $doc_remove]
            ///
            /// # Errors
            /// [`crate::Error::ReadOnly`], [`crate::Error::Forked`], [`crate::Error::Corrupt`].
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// assert_eq!(table.remove(1)?, Some(10));
            /// assert_eq!(table.remove(1)?, None);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn remove(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
                self.remove_one(key)
            }

            /// Removes `key`, without returning whether it was present.
            ///
            /// # Errors
            /// As [`remove`](Self::remove).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.delete(1)?;
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn delete(&self, key: Arg<'_, K>) -> Result<()> {
                self.delete_one(key)
            }

            /// Reads, modifies and writes the value of `key` atomically: calls `f` with the present value, then applies
            /// its decision. If another thread changes the value in between, `f` is called again. No lock is held while
            /// `f` runs.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            /// use icefield::Decision;
            #[doc = concat!(" let visits = icefield::", stringify!($public), "::<str, u64>::in_memory()?;")]
            /// for _ in 0..3 {
            ///     visits.compute("home", |count| Decision::Put(count.copied().unwrap_or(0) + 1))?;
            /// }
            /// assert_eq!(visits.get("home")?, Some(3));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn compute(
                &self,
                key: Arg<'_, K>,
                f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
            ) -> Result<Computed<Owned<V>>> {
                self.compute_one(key, f)
            }

            /// Replaces the value by `new` if it equals `current`. Otherwise `Err` holds the present value, or `None`
            /// if the key is absent. Byte values are compared as a whole.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, [u8]>::in_memory()?;")]
            /// table.put(1, b"draft")?;
            /// assert_eq!(table.compare_exchange(1, b"draft", b"final")?, Ok(()));
            /// assert_eq!(table.compare_exchange(1, b"draft", b"void")?, Err(Some(b"final".to_vec())));
            /// assert_eq!(table.compare_exchange(2, b"draft", b"final")?, Err(None));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn compare_exchange(
                &self,
                key: Arg<'_, K>,
                current: Arg<'_, V>,
                new: Arg<'_, V>,
            ) -> Result<$crate::table::Exchanged<V>> {
                Table::compare_exchange(self, key, current, new)
            }

            /// Adds `delta` to the value of `key`, wrapping around; returns the value before. An absent key counts as
            /// zero.
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// assert_eq!(table.fetch_add(1, 5)?, 0);
            /// assert_eq!(table.fetch_add(1, 5)?, 5);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn fetch_add(&self, key: Arg<'_, K>, delta: V) -> Result<V>
            where
                V: Counter + Data<Owned = V>,
            {
                Table::fetch_add(self, key, delta)
            }

            #[doc = $doc_len]
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// assert_eq!(table.len()?, 1);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn len(&self) -> Result<u64> {
                self.count()
            }

            /// Returns `true` if the table holds no record.
            ///
            /// # Errors
            /// As [`len`](Self::len).
            ///
            /// ```
            #[doc = concat!(" assert!(icefield::", stringify!($public), "::<u64, u64>::in_memory()?.is_empty()?);")]
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn is_empty(&self) -> Result<bool> {
                Ok(self.len()? == 0)
            }

            #[doc = $doc_capacity]
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::options().capacity(5000).in_memory()?;")]
            /// assert!(table.capacity() >= 5000);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn capacity(&self) -> u64 {
                self.room()
            }

            /// Returns sizes and counters of the table. Constant time.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// println!("{:?}", table.stats());
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn stats(&self) -> Stats {
                self.stats_now()
            }

            #[doc = $doc_iter]
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let records = table.iter().collect::<Result<Vec<_>, _>>()?;
            /// assert_eq!(records, [(1, 10)]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn iter(&self) -> crate::Iter<'_, Self> {
                crate::Iter::new(self)
            }

            /// Calls `f` with every record until it breaks, as consistent as [`iter`](Self::iter). No lock is held
            /// while `f` runs.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            /// use std::ops::ControlFlow;
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let mut sum = 0;
            /// table.for_each(|_, value| { sum += value; ControlFlow::Continue(()) })?;
            /// assert_eq!(sum, 10);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn for_each(&self, f: impl FnMut(&Owned<K>, &Owned<V>) -> ControlFlow<()>) -> Result<()> {
                Table::for_each(self, f)
            }

            #[doc = $doc_scan]
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            /// use icefield::Cursor;
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let page = table.scan(Cursor::START, 100)?;
            /// assert_eq!((page.records, page.next), (vec![(1, 10)], None));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
                self.scan_page(cursor, n, &mut |_, error| Err(error))
            }

            #[doc = $doc_clear]
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// table.clear()?;
            /// assert!(table.is_empty()?);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn clear(&self) -> Result<()> {
                self.clear_all()
            }

            #[doc = $doc_reserve]
            ///
            /// # Errors
            /// [`crate::Error::NoSpace`]; the room that was already made is kept.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.reserve(10_000)?;
            /// assert!(table.capacity() >= 10_000);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn reserve(&self, additional: u64) -> Result<()> {
                self.make_room_for(additional)
            }

            /// Removes the records for which `f` returns `false`, each by a separate operation; returns the number of
            /// removed records.
            ///
            /// # Errors
            /// As [`remove`](Self::remove).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put_batch(&[(1, 10), (2, 20)])?;
            /// assert_eq!(table.retain(|key, _| key == 2)?, 1);
            /// assert_eq!(table.len()?, 1);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn retain(&self, f: impl FnMut(Arg<'_, K>, &V) -> bool) -> Result<usize> {
                let storage = &self.core.storage;
                storage.check_writable()?;
                let removed = crate::table::retain(self, f)?;
                // The records that it read may depend on a sync that has failed since.
                storage.check_writable().map(|()| removed)
            }

            /// Runs [`get`](Self::get) for each key in order, with overlapping memory latencies.
            ///
            /// # Errors
            /// As [`get`](Self::get); [`crate::Error::InvalidOption`] if the slices differ in length.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let mut found = [None; 2];
            /// table.get_batch(&[1, 2], &mut found)?;
            /// assert_eq!(found, [Some(10), None]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn get_batch(&self, keys: &[Arg<'_, K>], found: &mut [Option<Owned<V>>]) -> Result<()> {
                self.read_batch(keys, found)
            }

            #[doc = $doc_insert_batch]
            ///
            /// # Errors
            /// As [`try_insert`](Self::try_insert); the operations before the failing one are durable, and their
            /// results are filled in.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// let mut previous = [None; 2];
            /// table.insert_batch(&[(1, 10), (1, 11)], &mut previous)?;
            /// assert_eq!(previous, [None, Some(10)]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn insert_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                previous: &mut [Option<Owned<V>>],
            ) -> Result<()> {
                self.upsert_batch(records, WriteMode::Upsert, Some(previous))
            }

            /// Runs [`put`](Self::put) for each record, as [`insert_batch`](Self::insert_batch) does.
            ///
            /// # Errors
            /// As [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put_batch(&[(1, 10), (2, 20)])?;
            /// assert_eq!(table.len()?, 2);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn put_batch(&self, records: &[RecordArg<'_, K, V>]) -> Result<()> {
                self.upsert_batch(records, WriteMode::Upsert, None)
            }

            /// Runs [`update`](Self::update) for each record, as [`insert_batch`](Self::insert_batch) does.
            ///
            /// # Errors
            /// As [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let mut previous = [None; 2];
            /// table.update_batch(&[(1, 11), (2, 20)], &mut previous)?;
            /// assert_eq!(previous, [Some(10), None]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn update_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                previous: &mut [Option<Owned<V>>],
            ) -> Result<()> {
                self.upsert_batch(records, WriteMode::Update, Some(previous))
            }

            /// Runs [`try_insert`](Self::try_insert) for each record, as [`insert_batch`](Self::insert_batch) does.
            ///
            /// # Errors
            /// As [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            /// use icefield::Occupied;
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// let mut outcomes = [Ok(()), Ok(())];
            /// table.try_insert_batch(&[(1, 10), (1, 11)], &mut outcomes)?;
            /// assert_eq!(outcomes, [Ok(()), Err(Occupied(10))]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn try_insert_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                outcomes: &mut [TryInsert<V>],
            ) -> Result<()> {
                self.try_insert_all(records, outcomes)
            }

            /// Runs [`remove`](Self::remove) for each key, as [`insert_batch`](Self::insert_batch) does.
            ///
            /// # Errors
            /// As [`insert_batch`](Self::insert_batch).
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let mut removed = [None; 2];
            /// table.remove_batch(&[1, 2], &mut removed)?;
            /// assert_eq!(removed, [Some(10), None]);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn remove_batch(
                &self,
                keys: &[Arg<'_, K>],
                removed: &mut [Option<Owned<V>>],
            ) -> Result<()> {
                self.remove_all(keys, removed)
            }

            /// Runs a mixed batch strictly in order; returns the number of operations that ran. These are durable, and
            /// their results are filled in.
            ///
            /// # Errors
            /// As [`insert_batch`](Self::insert_batch); [`Error::Unsupported`](crate::Error::Unsupported), before any
            /// operation runs, if there is an [`Op::Shadow`].
            ///
            /// ```
            /// use icefield::{OnFailure, Op};
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// let mut ops = [Op::put(1, 10), Op::get(2), Op::put(3, 30)];
            /// assert_eq!(table.execute(&mut ops, OnFailure::Stop)?, 2);
            /// assert_eq!(table.get(3)?, None);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
                self.execute_all(ops, on_failure)
            }

            /// Prefetches the memory that a read of `key` will access.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.prefetch(1);
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn prefetch(&self, key: Arg<'_, K>) {
                self.prefetch_key(key);
            }

            /// Prefetches `key`, yields to the executor once, then reads the value.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            ///
            /// ```
            /// # fn block_on<F: Future>(future: F) -> F::Output {
            /// #     let mut future = std::pin::pin!(future);
            /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            /// #     loop {
            /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
            /// #     }
            /// # }
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// assert_eq!(block_on(table.get_async(1))?, Some(10));
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn get_async(
                &self,
                key: Arg<'_, K>,
            ) -> impl Future<Output = Result<Option<Owned<V>>>> + Send {
                Table::get_async(self, key)
            }

            #[doc = $doc_sync]
            ///
            /// # Errors
            /// [`Error::Poisoned`](crate::Error::Poisoned) if a sync failed.
            ///
            /// ```
            #[doc = concat!(" icefield::", stringify!($public), "::<u64, u64>::in_memory()?.sync()?;")]
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn sync(&self) -> Result<()> {
                self.sync_now()
            }

            #[doc = $doc_check]
            ///
            /// # Errors
            /// The words that lead to the rest of the table cannot be read.
            ///
            /// ```
            #[doc = concat!(" assert!(icefield::", stringify!($public), "::<u64, u64>::in_memory()?.check()?.is_clean());")]
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn check(&self) -> Result<CheckReport> {
                let mut report = self.check_all()?;
                let core = &self.core;
                let named = crate::storage::superblock::check(&core.storage, &core.table)?;
                named.into_iter().for_each(|fault| report.fault(fault));
                Ok(report)
            }

            /// Copies everything that can still be read to a new table at `path`.
            ///
            /// # Errors
            /// The new table cannot be written.
            ///
            /// ```
            #[doc = concat!(" let table = icefield::", stringify!($public), "::<u64, u64>::in_memory()?;")]
            /// table.put(1, 10)?;
            /// let directory = tempfile::tempdir()?;
            /// assert_eq!(table.salvage(directory.path().join("rescued.ice"))?.records, 1);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn salvage(&self, path: impl AsRef<Path>) -> Result<SalvageReport> {
                self.salvage_to(path.as_ref())
            }

            /// Copies the table's directory to `path`, where the copy opens as a table. Writers wait during the copy;
            /// readers do not.
            ///
            /// # Errors
            /// The copy cannot be written; nothing is left at `path`.
            ///
            /// ```
            #[doc = concat!(" use icefield::", stringify!($public), ";")]
            /// let directory = tempfile::tempdir()?;
            #[doc = concat!(" let table = ", stringify!($public), "::<u64, u64>::create(directory.path().join(\"orders.ice\"))?;")]
            /// table.put(1, 10)?;
            /// table.backup(directory.path().join("copy.ice"))?;
            #[doc = concat!(" assert_eq!(", stringify!($public), "::<u64, u64>::open(directory.path().join(\"copy.ice\"))?.get(1)?, Some(10));")]
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
                self.backup_to(path.as_ref())
            }

            /// Returns the table's directory; an invented name for a table in memory.
            ///
            /// ```
            #[doc = concat!(" println!(\"{}\", icefield::", stringify!($public), "::<u64, u64>::in_memory()?.path().display());")]
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn path(&self) -> &Path {
                self.core.storage.path()
            }

            /// Returns what opening found and did.
            ///
            /// ```
            #[doc = concat!(" assert!(icefield::", stringify!($public), "::<u64, u64>::in_memory()?.recovery().was_clean);")]
            /// # Ok::<(), icefield::Error>(())
            /// ```
            pub fn recovery(&self) -> RecoveryReport {
                self.recovery.clone()
            }
        }

        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?, M: Medium> fmt::Debug for $table<K, V $(, $policy)?, M> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($design).field("path", &self.path()).field("stats", &self.stats()).finish()
            }
        }

        impl<'a, K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?, M: Medium> IntoIterator
            for &'a $table<K, V $(, $policy)?, M>
        {
            type Item = Result<(K::Owned, V::Owned)>;
            type IntoIter = crate::Iter<'a, $table<K, V $(, $policy)?, M>>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?, M: Medium> Table for $table<K, V $(, $policy)?, M> {
            type Key = K;
            type Value = V;

            fn get(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
                self.get_owned(key)
            }
            fn get_with<R>(&self, key: Arg<'_, K>, f: impl FnOnce(&V) -> R) -> Result<Option<R>> {
                self.get_shown(key, f)
            }
            fn contains(&self, key: Arg<'_, K>) -> Result<bool> {
                self.contains_key(key)
            }
            fn try_insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<TryInsert<V>> {
                self.try_insert_one(key, value)
            }
            fn insert(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
                self.write_one(key, value, WriteMode::Upsert)
            }
            fn put(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<()> {
                self.put_one(key, value)
            }
            fn update(&self, key: Arg<'_, K>, value: Arg<'_, V>) -> Result<Option<Owned<V>>> {
                self.write_one(key, value, WriteMode::Update)
            }
            fn remove(&self, key: Arg<'_, K>) -> Result<Option<Owned<V>>> {
                self.remove_one(key)
            }
            fn delete(&self, key: Arg<'_, K>) -> Result<()> {
                self.delete_one(key)
            }
            fn compute(
                &self,
                key: Arg<'_, K>,
                f: impl FnMut(Option<&V>) -> Decision<Owned<V>>,
            ) -> Result<Computed<Owned<V>>> {
                self.compute_one(key, f)
            }
            fn len(&self) -> Result<u64> {
                self.len()
            }
            fn capacity(&self) -> u64 {
                self.capacity()
            }
            fn stats(&self) -> Stats {
                self.stats_now()
            }
            fn scan(&self, cursor: Cursor, n: usize) -> Result<Page<K, V>> {
                self.scan_page(cursor, n, &mut |_, error| Err(error))
            }
            fn clear(&self) -> Result<()> {
                self.clear_all()
            }
            fn reserve(&self, additional: u64) -> Result<()> {
                self.reserve(additional)
            }
            fn shrink_to_fit(&self) -> Result<()> {
                self.shrink()
            }
            fn retain(&self, f: impl FnMut(Arg<'_, K>, &V) -> bool) -> Result<usize> {
                self.retain(f)
            }
            fn get_batch(&self, keys: &[Arg<'_, K>], found: &mut [Option<Owned<V>>]) -> Result<()> {
                self.read_batch(keys, found)
            }
            fn insert_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                previous: &mut [Option<Owned<V>>],
            ) -> Result<()> {
                self.upsert_batch(records, WriteMode::Upsert, Some(previous))
            }
            fn put_batch(&self, records: &[RecordArg<'_, K, V>]) -> Result<()> {
                self.upsert_batch(records, WriteMode::Upsert, None)
            }
            fn update_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                previous: &mut [Option<Owned<V>>],
            ) -> Result<()> {
                self.upsert_batch(records, WriteMode::Update, Some(previous))
            }
            fn try_insert_batch(
                &self,
                records: &[RecordArg<'_, K, V>],
                outcomes: &mut [TryInsert<V>],
            ) -> Result<()> {
                self.try_insert_all(records, outcomes)
            }
            fn remove_batch(&self, keys: &[Arg<'_, K>], removed: &mut [Option<Owned<V>>]) -> Result<()> {
                self.remove_all(keys, removed)
            }
            fn execute(&self, ops: &mut [Op<'_, K, V>], on_failure: OnFailure) -> Result<usize> {
                self.execute_all(ops, on_failure)
            }
            fn prefetch(&self, key: Arg<'_, K>) {
                self.prefetch(key);
            }
        }

        impl<K: Key + ?Sized, V: Value + ?Sized $(, $policy: $bound)?, M: Medium> Durable for $table<K, V $(, $policy)?, M> {
            fn sync(&self) -> Result<()> {
                self.sync()
            }
            fn check(&self) -> Result<CheckReport> {
                self.check()
            }
            fn scan_whole(
                &self,
                cursor: Cursor,
                n: usize,
                damaged: &mut dyn FnMut(Option<Owned<K>>, $crate::Error),
            ) -> Result<Page<K, V>> {
                self.scan_page(cursor, n, &mut |key, error| match error {
                    $crate::Error::Corrupt { .. } => {
                        damaged(key, error);
                        Ok(())
                    }
                    error => Err(error),
                })
            }
            fn salvage(&self, path: &Path) -> Result<SalvageReport> {
                self.salvage_to(path)
            }
            fn backup(&self, path: &Path) -> Result<BackupReport> {
                self.backup_to(path)
            }
            fn path(&self) -> &Path {
                self.path()
            }
            fn recovery(&self) -> RecoveryReport {
                self.recovery.clone()
            }
        }
    };
}
pub(crate) use public_face;
