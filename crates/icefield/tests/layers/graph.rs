//! The imports between the files of a crate.
//!
//! File A imports file B if a path in A leads to an item that B defines. Re-exports are followed to the file that
//! defines the item: `use super::Segment` imports `segment.rs`, not the `mod.rs` that re-exports the item. A
//! declaration, `mod segment;`, does not import the file, and a re-export does not import the item. Code for tests is
//! left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use syn::visit::{self, Visit};
use syn::{Attribute, ForeignItem, Ident, Item, ItemMod, ItemUse, Macro, Path, Visibility};

use super::macros;
use super::paths::{leaves, names};
use super::source::{Source, attributes, is_for_tests, line};

/// The modules of a crate.
pub struct Graph<'a> {
    modules: Vec<Module<'a>>,
}

struct Module<'a> {
    source: &'a Source,
    items: &'a [Item],
    /// The number of the enclosing module; for the root, its own number.
    parent: usize,
    names: HashMap<String, Vec<Meaning>>,
    /// The modules of which all names are imported (`use path::*`).
    globs: Vec<Vec<String>>,
}

/// The meaning of a name in a module.
enum Meaning {
    Module(usize),
    Item,
    Import(Vec<String>),
}

/// The module or the item that a path leads to.
#[derive(Clone)]
enum Target {
    Module(usize),
    Item { module: usize, name: String },
}

/// An item of one file, named in another one.
#[derive(Debug)]
pub struct Import {
    pub from: String,
    pub line: usize,
    pub to: String,
    /// The module path of the file that defines the item.
    pub module: Vec<String>,
    pub name: String,
}

impl<'a> Graph<'a> {
    /// Follows the modules from the crate's root. `files` has the sources by path.
    pub fn new(root: &'a Source, files: &HashMap<&str, &'a Source>) -> Self {
        let mut graph = Self { modules: Vec::new() };
        let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        graph.add(root, &root.syntax.items, folder, 0, files);
        graph
    }

    /// Adds a module and the modules that it declares. `folder` contains the files of the declared modules.
    fn add(
        &mut self,
        source: &'a Source,
        items: &'a [Item],
        folder: &str,
        parent: usize,
        files: &HashMap<&str, &'a Source>,
    ) -> usize {
        let number = self.modules.len();
        let (names, globs) = (HashMap::new(), Vec::new());
        self.modules.push(Module { source, items, parent, names, globs });
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let folder = format!("{folder}/{name}");
                    let known = self.module(number, &name);
                    let child = match &module.content {
                        // The module is declared a second time, under another condition.
                        _ if known.is_some() => known,
                        Some((_, items)) => Some(self.add(source, items, &folder, number, files)),
                        None => {
                            let paths = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
                            let file = paths.iter().find_map(|path| files.get(path.as_str()));
                            file.map(|file| {
                                self.add(file, &file.syntax.items, &folder, number, files)
                            })
                        }
                    };
                    let child = child.unwrap_or_else(|| {
                        panic!("{}: no file for `mod {name}`", source.at(line(module.ident.span())))
                    });
                    self.name(number, name, Meaning::Module(child));
                }
                Item::ForeignMod(block) => {
                    for item in &block.items {
                        if let ForeignItem::Fn(function) = item {
                            self.name(number, function.sig.ident.to_string(), Meaning::Item);
                        }
                    }
                }
                item => {
                    if let Some(name) = defined(item) {
                        self.name(number, name.to_string(), Meaning::Item);
                    }
                }
            }
        }
        for (path, name) in uses(items) {
            if name == "*" {
                self.modules[number].globs.push(path);
            } else {
                self.name(number, name, Meaning::Import(path));
            }
        }
        number
    }

    fn name(&mut self, module: usize, name: String, meaning: Meaning) {
        self.modules[module].names.entry(name).or_default().push(meaning);
    }

    /// Returns the module that `parent` declares by this name.
    fn module(&self, parent: usize, name: &str) -> Option<usize> {
        self.modules[parent].names.get(name)?.iter().find_map(|meaning| match meaning {
            Meaning::Module(module) => Some(*module),
            _ => None,
        })
    }

    /// Returns the modules and items that `path` leads to from `module`; none if they are in another crate.
    fn resolve(
        &self,
        module: usize,
        path: &[String],
        visited: &mut HashSet<(usize, String)>,
    ) -> Vec<Target> {
        let mut targets = vec![Target::Module(module)];
        for (position, segment) in path.iter().enumerate() {
            let modules = targets.iter().filter_map(|target| match target {
                Target::Module(module) => Some(*module),
                Target::Item { .. } => None,
            });
            let modules: Vec<usize> = modules.collect();
            if modules.is_empty() {
                // The rest of the path names variants of an enum or associated items.
                return targets;
            }
            targets.clear();
            for module in modules {
                match segment.as_str() {
                    "crate" => targets.push(Target::Module(0)),
                    "self" | "*" => targets.push(Target::Module(module)),
                    "super" => targets.push(Target::Module(self.modules[module].parent)),
                    name => {
                        let found = self.meanings(module, name, visited);
                        // If a macro composes the name of an item, no list of names contains the item.
                        let is_hidden = found.is_empty() && position > 0;
                        targets.extend(found);
                        if is_hidden {
                            targets.push(Target::Item { module, name: name.to_owned() });
                        }
                    }
                }
            }
            if targets.is_empty() {
                break;
            }
        }
        targets
    }

    fn meanings(
        &self,
        module: usize,
        name: &str,
        visited: &mut HashSet<(usize, String)>,
    ) -> Vec<Target> {
        if !visited.insert((module, name.to_owned())) {
            return Vec::new();
        }
        let mut targets = Vec::new();
        let Module { names, globs, .. } = &self.modules[module];
        for meaning in names.get(name).into_iter().flatten() {
            match meaning {
                Meaning::Module(module) => targets.push(Target::Module(*module)),
                Meaning::Item => targets.push(Target::Item { module, name: name.to_owned() }),
                Meaning::Import(path) => targets.extend(self.resolve(module, path, visited)),
            }
        }
        if targets.is_empty() {
            for glob in globs {
                for target in self.resolve(module, glob, visited) {
                    if let Target::Module(other) = target {
                        targets.extend(self.meanings(other, name, visited));
                    }
                }
            }
        }
        visited.remove(&(module, name.to_owned()));
        targets
    }

    /// Returns the imports of all files, one for each importing file and imported item.
    pub fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        for (module, Module { source, items, .. }) in self.modules.iter().enumerate() {
            let mut finder = Finder { graph: self, module, source, found: BTreeMap::new() };
            items.iter().for_each(|item| finder.visit_item(item));
            found.extend(finder.found.into_iter().map(|((to, name), (line, module))| Import {
                from: source.path.clone(),
                line,
                to,
                module,
                name,
            }));
        }
        found
    }
}

/// Returns the name that an item defines.
fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// Returns the path and the name of each import in `items`, including imports in functions.
fn uses(items: &[Item]) -> Vec<(Vec<String>, String)> {
    struct Uses(Vec<(Vec<String>, String)>);
    impl<'ast> Visit<'ast> for Uses {
        fn visit_item(&mut self, item: &'ast Item) {
            if !matches!(item, Item::Mod(_)) && !is_for_tests(attributes(item)) {
                visit::visit_item(self, item);
            }
        }

        fn visit_item_use(&mut self, import: &'ast ItemUse) {
            if import.leading_colon.is_none() {
                let leaves = leaves(&import.tree).into_iter();
                self.0.extend(leaves.map(|leaf| (leaf.segments, leaf.name)));
            }
        }
    }
    let mut uses = Uses(Vec::new());
    items.iter().for_each(|item| uses.visit_item(item));
    uses.0
}

struct Finder<'a> {
    graph: &'a Graph<'a>,
    module: usize,
    source: &'a Source,
    /// The first line that names an item of another file, and that file's modules. The key is the file's path and the
    /// item's name.
    found: BTreeMap<(String, String), (usize, Vec<String>)>,
}

impl Finder<'_> {
    fn add(&mut self, path: &[String], line: usize) {
        for target in self.graph.resolve(self.module, path, &mut HashSet::new()) {
            let Target::Item { module, name } = target else { continue };
            let other = self.graph.modules[module].source;
            if other.path != self.source.path {
                let key = (other.path.clone(), name);
                self.found.entry(key).or_insert_with(|| (line, other.modules.clone()));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    /// Does not enter modules, because each has a separate `Finder`.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        let is_private = matches!(import.vis, Visibility::Inherited);
        if is_private && import.leading_colon.is_none() {
            for leaf in leaves(&import.tree) {
                self.add(&leaf.segments, line(leaf.span));
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.add(&names(path), line(path.segments[0].ident.span()));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        visit::visit_macro(self, called);
        macros::visit_body(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        macros::visit_attribute(self, attribute);
    }
}

/// Returns the groups of files that import one another, directly or through others, each in alphabetical order.
pub fn cycles(imports: &[Import]) -> Vec<Vec<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for import in imports {
        next.entry(&import.from).or_default().push(&import.to);
    }
    let reach: BTreeMap<&str, HashSet<&str>> =
        next.keys().map(|file| (*file, reached(&next, file))).collect();
    let mut cycles: Vec<Vec<&str>> = Vec::new();
    for (file, reached) in &reach {
        if reached.contains(file) && !cycles.iter().any(|cycle| cycle.contains(file)) {
            let returns =
                |other: &&&str| reached.contains(**other) && reach[**other].contains(file);
            cycles.push(reach.keys().filter(returns).copied().collect());
        }
    }
    cycles
}

/// Returns the files that `from` imports, directly or through others.
fn reached<'a>(next: &BTreeMap<&'a str, Vec<&'a str>>, from: &'a str) -> HashSet<&'a str> {
    let mut reached = HashSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let others = next.get(file).into_iter().flatten();
        open.extend(others.filter(|other| reached.insert(**other)));
    }
    reached
}
