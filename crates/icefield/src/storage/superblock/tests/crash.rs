//! All crashes during creation and sessions, in both models. Shows that every flush, fence and order is needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::*;
use super::identity;
use crate::storage::sim::{
    CrashPoint, Image, Model, Mutation, Pick, Sim, SimOptions, Site, SiteKind, SiteLog,
};

/// If a crash point has at most this number of images, all are checked; otherwise, a sample.
const ENUMERATED: u64 = 512;
const SAMPLES: u64 = 32;

/// The possible content of an image.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// No table, or a complete one.
    Creating,
    /// A table. Its next session has a number from `least` to `most`; if its last session ended cleanly, that session
    /// stored `records`.
    Sealed { least: u64, most: u64, clean: Clean, records: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clean {
    Yes,
    No,
    Either,
}

fn check(
    image: &Image,
    expected: Expected,
    options: &SimOptions,
) -> std::result::Result<(), String> {
    let storage = Sim::from_image(image, SimOptions { recording: false, ..options.clone() });
    let region = match (read(&storage), expected) {
        (Err(Error::NotFound { .. }), Expected::Creating) => return Ok(()),
        (Ok((region, found)), _) if found == identity() => region,
        (answer, _) => {
            return Err(format!("{expected:?}, but: {:?}", answer.map(|_| "another table")));
        }
    };
    let start = begin_session(&storage, &region).map_err(|error| error.to_string())?;
    let Expected::Sealed { least, most, clean, records } = expected else { return Ok(()) };
    let numbered = (least..=most).contains(&start.generation);
    let closed = clean == Clean::Either || (clean == Clean::Yes) == start.was_clean;
    if numbered && closed && (!start.was_clean || start.records == records) {
        return Ok(());
    }
    Err(format!("{expected:?}, but {start:?}"))
}

fn check_all(
    point: &CrashPoint<'_>,
    expected: Expected,
    options: &SimOptions,
) -> std::result::Result<u64, String> {
    let space = point.space();
    let (images, enumerated) = match space.count() {
        Some(count) if count <= ENUMERATED => (count, true),
        _ => (SAMPLES, false),
    };
    let mut image = Image::default();
    for n in 0..images {
        let pick = if enumerated { Pick::Nth(n) } else { Pick::sample(n, point.event().number) };
        space.image(pick, &mut image);
        check(&image, expected, options)
            .map_err(|fault| format!("{:?}, {pick:?}: {fault}", point.event()))?;
    }
    Ok(images)
}

/// Creates a table, opens and closes it twice, and checks every crash point. Returns the number of images.
fn scenario(options: SimOptions) -> std::result::Result<u64, String> {
    let images_of = SimOptions { sites: None, mutation: None, ..options.clone() };
    let observers = images_of.clone();
    let storage = Sim::new(options);
    let expected = Arc::new(Mutex::new((Expected::Creating, Ok(0))));
    let set = |next| expected.lock().unwrap_or_else(PoisonError::into_inner).0 = next;
    let shared = Arc::clone(&expected);
    storage.on_event(move |point| {
        let mut guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let (expected, Ok(images)) = &*guard {
            guard.1 = check_all(point, *expected, &observers).map(|more| images + more);
        }
    });
    let returned = |next| {
        set(next);
        storage.crash_point(|point| check_all(point, next, &images_of))
    };
    let fault = |error: Error| error.to_string();
    let sealed = |least, most, clean, records| Expected::Sealed { least, most, clean, records };

    storage.begin_op();
    let region = create(&storage).map_err(fault)?;
    seal(&storage, &region, &identity()).map_err(fault)?;
    returned(sealed(1, 1, Clean::No, 0))?;
    for session in 1..=2 {
        let (before, records) = (40 + session - 1, 40 + session);
        set(sealed(
            session,
            session + 1,
            if session == 1 { Clean::No } else { Clean::Either },
            before,
        ));
        storage.begin_op();
        begin_session(&storage, &region).map_err(fault)?;
        returned(sealed(session + 1, session + 1, Clean::No, 0))?;
        set(sealed(session + 1, session + 1, Clean::Either, records));
        storage.begin_op();
        end_session(&storage, &region, records).map_err(fault)?;
        returned(sealed(session + 1, session + 1, Clean::Yes, records))?;
    }
    storage.no_observer();
    expected.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
}

#[test]
fn every_crash_leaves_no_table_or_a_whole_one() {
    for model in [Model::Pmem, Model::Disk] {
        let images = scenario(SimOptions { model, ..SimOptions::default() }).unwrap();
        assert!(images > 1000, "{model:?}: {images} images");
    }
}

/// Returns whether a crash reveals that `site` was left out (or moved), in either model; `None` when the mutation was
/// applied in neither.
fn is_needed(site: Site) -> Option<bool> {
    let mut needed = None;
    for model in [Model::Pmem, Model::Disk] {
        let mutation = Mutation::of(site);
        let shared = Some(Arc::clone(&mutation));
        let options = SimOptions { model, mutation: shared, ..SimOptions::default() };
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(options)));
        if mutation.applied() > 0 {
            needed = Some(needed.unwrap_or(false) || !matches!(outcome, Ok(Ok(_))));
        }
    }
    needed
}

#[test]
fn every_flush_and_fence_is_needed() {
    let log = SiteLog::default();
    scenario(SimOptions { sites: Some(log.clone()), ..SimOptions::default() }).unwrap();
    let mut needed = 0;
    for (site, _) in log.sites() {
        match is_needed(site) {
            Some(true) => needed += 1,
            // The words of the identity may be stored in any order.
            Some(false) => assert_eq!(site.kind, SiteKind::Store, "{site} could be left out"),
            None => {}
        }
    }
    // Creation needs two flushes, two fences and the order of the magic; a session needs two flushes and two fences.
    assert!(needed >= 9, "{needed} of {:?}", log.sites());
}
