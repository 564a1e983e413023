//! The key and value types in a superblock: their names, and the forms in which they are stored.

use crate::key::{Form, Key, Value};
use crate::storage::Medium;
use crate::storage::superblock::Identity;
use crate::{Error, Result};

/// The superblock parameters with the forms of keys and values.
const KEY_FORM: usize = 4;
const VALUE_FORM: usize = 5;

/// Encodes a form as a superblock parameter.
fn form_code(form: Form) -> u64 {
    match form {
        Form::Word => 1,
        Form::Fixed(bytes) => 2 | (bytes as u64) << 8,
        Form::Variable => 3,
    }
}

fn form_of(code: u64) -> Option<Form> {
    match code & 0xFF {
        1 => Some(Form::Word),
        2 => usize::try_from(code >> 8).ok().map(Form::Fixed),
        3 => Some(Form::Variable),
        _ => None,
    }
}

/// Returns the forms of a table's keys and values; `None` if the superblock's values are invalid.
pub(crate) fn forms(identity: &Identity) -> Option<[Form; 2]> {
    Some([form_of(identity.params[KEY_FORM])?, form_of(identity.params[VALUE_FORM])?])
}

/// Returns whether a table's keys are words.
pub(crate) fn key_is_word(identity: &Identity) -> bool {
    identity.params[KEY_FORM] == form_code(Form::Word)
}

/// The types to store in a new table's superblock, if they are not those of `K` and `V`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredTypes(Option<[(String, u64); 2]>);

impl StoredTypes {
    /// Returns the given types, for `K` and `V` that represent any type of a form.
    pub(crate) fn named(key: (&str, Form), value: (&str, Form)) -> Self {
        Self(Some([key, value].map(|(name, form)| (name.to_owned(), form_code(form)))))
    }

    /// Returns the types of another table.
    pub(crate) fn of(identity: &Identity) -> Self {
        Self(Some([
            (identity.key_type.clone(), identity.params[KEY_FORM]),
            (identity.value_type.clone(), identity.params[VALUE_FORM]),
        ]))
    }

    /// Stores the types in `identity`.
    pub(crate) fn inscribe<K: Key + ?Sized, V: Value + ?Sized>(&self, identity: &mut Identity) {
        let own =
            || [(K::TYPE.to_owned(), form_code(K::FORM)), (V::TYPE.to_owned(), form_code(V::FORM))];
        let [(key_type, key_form), (value_type, value_form)] = self.0.clone().unwrap_or_else(own);
        (identity.key_type, identity.value_type) = (key_type, value_type);
        identity.params[KEY_FORM] = key_form;
        identity.params[VALUE_FORM] = value_form;
    }
}

/// Returns an error if the table has another design or other types. An empty type name matches every type whose form is
/// a word, or every type whose form is not.
pub(crate) fn check_types<K: Key + ?Sized, V: Value + ?Sized>(
    storage: &impl Medium,
    identity: &Identity,
    design: &str,
) -> Result<()> {
    let fits = |wanted: &str, form: Form, found: &str, code: u64| match wanted {
        "" => (form == Form::Word) == (code == form_code(Form::Word)),
        _ => wanted == found && form_code(form) == code,
    };
    let same = identity.design == design
        && fits(K::TYPE, K::FORM, &identity.key_type, identity.params[KEY_FORM])
        && fits(V::TYPE, V::FORM, &identity.value_type, identity.params[VALUE_FORM]);
    if same {
        return Ok(());
    }
    Err(Error::TypeMismatch {
        path: storage.path().into(),
        expected: format!("{design}<{}, {}>", K::TYPE, V::TYPE),
        found: format!("{}<{}, {}>", identity.design, identity.key_type, identity.value_type),
    })
}
