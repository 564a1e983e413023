//! Copies of tables.

use super::*;

#[test]
fn a_copy_opens_as_a_table() {
    let scratch = scratch();
    for (index, storage) in [
        make(&scratch.path().join("t"), process(), 3 << 20),
        make(&scratch.path().join("d"), with(Durability::Disk), 3 << 20),
        Mapped::anonymous(MappedOptions::default()).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        let table = superblock::create(&storage).unwrap();
        superblock::seal(&storage, &table, &identity()).unwrap();
        let region = data(&storage);
        storage.grow(&region, 3 << 20).unwrap();
        let far = region.len() - 8;
        for (offset, word) in [(0, 77), (1 << 20, 78), (far, 79)] {
            cell(&region, offset).store(&storage, word, Relaxed);
        }
        storage.region("empty.ice", 4096).unwrap();
        let target = scratch.path().join(format!("copy-{index}"));
        let bytes = storage.backup_to(&target).unwrap();
        assert!((1..=region.len() + 8192).contains(&bytes), "{bytes}");
        cell(&region, 0).store(&storage, 1, Relaxed);
        assert_eq!(names(&target), [DATA, "empty.ice", "lock", TABLE_REGION]);

        let copy = Mapped::open(&target, process()).unwrap();
        assert_eq!(superblock::read(&copy).unwrap().1, identity());
        let copied = data(&copy);
        assert_eq!(copied.len(), region.len());
        for (offset, word) in [(0, 77), (8, 0), (1 << 20, 78), (far, 79)] {
            assert_eq!(cell(&copied, offset).load(&copy, Relaxed), word);
        }
        assert!(matches!(storage.backup_to(&target), Err(Error::AlreadyExists { .. })));
        if storage.durability() != Durability::Memory {
            assert!(matches!(storage.backup_to(storage.path()), Err(Error::AlreadyExists { .. })));
        }
    }
}

#[test]
fn holes_are_not_copied_and_yet_reserved() {
    use std::os::unix::fs::MetadataExt;
    let scratch = scratch();
    let (path, sparse) = (scratch.path().join("t"), scratch.path().join("sparse"));
    drop(make(&path, process(), 64 << 20));
    // Reserved blocks that were never written count as data while the page cache holds them; holes never do.
    copy_with_holes(&path, &sparse);
    let target = scratch.path().join("copy");
    let bytes = Mapped::open_read_only(&sparse, process()).unwrap().backup_to(&target).unwrap();
    assert!(
        !(1 << 20..64 << 20).contains(&bytes),
        "either almost nothing or everything, by sharing blocks: {bytes}"
    );
    let status = fs::metadata(target.join(DATA)).unwrap();
    assert!(status.blocks() * 512 >= status.len(), "a store into a hole could kill the process");
}

#[test]
fn readers_and_unpublished_tables_can_be_copied() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let storage = Mapped::create(&path, process()).unwrap();
    let table = superblock::create(&storage).unwrap();
    superblock::seal(&storage, &table, &identity()).unwrap();
    let region = data(&storage);
    storage.grow(&region, 8).unwrap();
    cell(&region, 0).store(&storage, 77, Relaxed);
    storage.backup_to(scratch.path().join("first")).unwrap();
    drop((storage, table, region));
    assert_eq!(names(scratch.path()), ["first"]);
    let reader = Mapped::open_read_only(scratch.path().join("first"), process()).unwrap();
    reader.backup_to(scratch.path().join("second")).unwrap();
    assert_eq!(first_word(&scratch.path().join("second")), 77);
}
