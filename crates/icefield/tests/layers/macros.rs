//! The syntax inside macros, which `syn` leaves as tokens.
//!
//! The body of a call is parsed as items, statements or expressions. If that fails, its parts are parsed: the tokens
//! between commas, semicolons and arrows, and the contents of brackets. In the bodies of `macro_rules!`, a name
//! replaces each parameter, and each repetition occurs once.

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};
use std::collections::HashMap;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Block, Expr, Item, Macro, Path, Stmt, Token};

/// The prefix of the name that replaces a macro's parameter.
const PARAMETER: &str = "macro_parameter_";

/// Returns the macro parameter (`$value`) that `name` replaces, or `None` for other names.
pub fn parameter(name: &str) -> Option<String> {
    name.strip_prefix(PARAMETER).map(|parameter| format!("${parameter}"))
}

/// Visits the syntax inside a macro call, or in the bodies of `macro_rules!`.
pub fn visit_body<V: for<'any> Visit<'any> + ?Sized>(visitor: &mut V, called: &Macro) {
    if called.path.is_ident("macro_rules") {
        rules(&called.tokens).iter().for_each(|body| visit_tokens(visitor, body));
    } else {
        visit_tokens(visitor, &called.tokens);
    }
}

/// Visits the paths between the parentheses of an attribute.
pub fn visit_attribute<V: for<'any> Visit<'any> + ?Sized>(
    visitor: &mut V,
    attribute: &syn::Attribute,
) {
    if let syn::Meta::List(list) = &attribute.meta {
        visit_paths(visitor, &list.tokens);
    }
}

fn visit_tokens<V: for<'any> Visit<'any> + ?Sized>(visitor: &mut V, tokens: &TokenStream) {
    if tokens.is_empty() || visit_whole(visitor, tokens) {
        return;
    }
    let parts = parts(tokens);
    if parts.len() > 1 {
        parts.iter().for_each(|part| visit_tokens(visitor, part));
        return;
    }
    visit_paths(visitor, tokens);
    for token in tokens.clone() {
        if let TokenTree::Group(group) = token {
            visit_tokens(visitor, &group.stream());
        }
    }
}

/// Visits `tokens` if they are items, statements or expressions. Returns whether they are.
fn visit_whole<V: for<'any> Visit<'any> + ?Sized>(visitor: &mut V, tokens: &TokenStream) -> bool {
    let items = |input: syn::parse::ParseStream<'_>| {
        let mut items: Vec<Item> = Vec::new();
        while !input.is_empty() {
            items.push(input.parse()?);
        }
        Ok(items)
    };
    let is_verbatim = |item: &Item| matches!(item, Item::Verbatim(_));
    if let Ok(items) = items.parse2(tokens.clone())
        && !items.iter().any(is_verbatim)
    {
        items.iter().for_each(|item| visitor.visit_item(item));
        return true;
    }
    let is_verbatim = |statement: &Stmt| match statement {
        Stmt::Item(item) => is_verbatim(item),
        Stmt::Expr(expression, _) => matches!(expression, Expr::Verbatim(_)),
        _ => false,
    };
    if let Ok(statements) = Block::parse_within.parse2(tokens.clone())
        && !statements.iter().any(is_verbatim)
    {
        statements.iter().for_each(|statement| visitor.visit_stmt(statement));
        return true;
    }
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    if let Ok(expressions) = list.parse2(tokens.clone()) {
        expressions.iter().for_each(|expression| visitor.visit_expr(expression));
        return true;
    }
    false
}

/// Splits `tokens` at commas, semicolons and arrows.
fn parts(tokens: &TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    let mut is_arrow = false;
    for token in tokens.clone() {
        let sign = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        let last = parts.last_mut().expect("never empty");
        match sign {
            ',' | ';' => parts.push(Vec::new()),
            '>' if is_arrow => {
                last.pop();
                parts.push(Vec::new());
            }
            _ => last.push(token),
        }
        is_arrow = sign == '=';
    }
    parts.into_iter().filter(|part| !part.is_empty()).map(TokenStream::from_iter).collect()
}

/// Visits the paths in `tokens` that consist of several names, outside of brackets.
fn visit_paths<V: for<'any> Visit<'any> + ?Sized>(visitor: &mut V, tokens: &TokenStream) {
    let mut run = TokenStream::new();
    for token in
        tokens.clone().into_iter().chain([TokenTree::Punct(Punct::new(';', Spacing::Alone))])
    {
        let continues = match &token {
            TokenTree::Ident(_) => true,
            TokenTree::Punct(punct) => punct.as_char() == ':',
            _ => false,
        };
        if continues {
            run.extend([token]);
            continue;
        }
        let paths = |input: syn::parse::ParseStream<'_>| {
            let mut paths = Vec::new();
            while !input.is_empty() {
                match input.call(Path::parse_mod_style) {
                    Ok(path) => paths.push(path),
                    Err(_) => drop(input.parse::<TokenTree>()?),
                }
            }
            Ok(paths)
        };
        for path in paths.parse2(std::mem::take(&mut run)).unwrap_or_default() {
            if path.segments.len() > 1 {
                visitor.visit_path(&path);
            }
        }
    }
}

/// Returns the body of each rule of `macro_rules!`, with names instead of its parameters.
fn rules(tokens: &TokenStream) -> Vec<TokenStream> {
    let mut bodies = Vec::new();
    let mut parameters = None;
    for token in tokens.clone() {
        let TokenTree::Group(group) = token else { continue };
        match parameters.take() {
            None => {
                let mut found = HashMap::new();
                find_parameters(&group.stream(), &mut found);
                parameters = Some(found);
            }
            Some(parameters) => bodies.push(one_turn(&group.stream(), &parameters)),
        }
    }
    bodies
}

/// Adds the kind of each parameter: `expr` for `$value:expr`.
fn find_parameters(matcher: &TokenStream, found: &mut HashMap<String, String>) {
    let tokens: Vec<TokenTree> = matcher.clone().into_iter().collect();
    for window in tokens.windows(4) {
        if let [
            TokenTree::Punct(dollar),
            TokenTree::Ident(name),
            TokenTree::Punct(colon),
            TokenTree::Ident(kind),
        ] = window
            && dollar.as_char() == '$'
            && colon.as_char() == ':'
        {
            found.insert(name.to_string(), kind.to_string());
        }
    }
    for token in &tokens {
        if let TokenTree::Group(group) = token {
            find_parameters(&group.stream(), found);
        }
    }
}

/// Replaces each parameter by a name, and each repetition by one occurrence of its content.
fn one_turn(body: &TokenStream, parameters: &HashMap<String, String>) -> TokenStream {
    let mut turned = TokenStream::new();
    let mut tokens = body.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => match tokens.next() {
                Some(TokenTree::Ident(name)) if name == "crate" => {
                    turned.extend([TokenTree::Ident(name)]);
                }
                Some(TokenTree::Ident(name)) => {
                    let kind = parameters.get(&name.to_string()).map_or("ident", String::as_str);
                    turned.extend(stand_in(&name, kind));
                }
                Some(TokenTree::Group(repeated)) => {
                    turned.extend(one_turn(&repeated.stream(), parameters));
                    // Skips the separator and the sign of the repetition.
                    for token in tokens.by_ref() {
                        if let TokenTree::Punct(sign) = token
                            && matches!(sign.as_char(), '*' | '+' | '?')
                        {
                            break;
                        }
                    }
                }
                _ => {}
            },
            TokenTree::Group(group) => {
                let mut inside =
                    Group::new(group.delimiter(), one_turn(&group.stream(), parameters));
                inside.set_span(group.span());
                turned.extend([TokenTree::Group(inside)]);
            }
            other => turned.extend([other]),
        }
    }
    turned
}

/// Returns the tokens that replace a parameter of this kind.
fn stand_in(name: &Ident, kind: &str) -> Vec<TokenTree> {
    let ident = |span: Span| TokenTree::Ident(Ident::new(&format!("{PARAMETER}{name}"), span));
    match kind {
        // `self` cannot have another name.
        _ if name == "self" => vec![TokenTree::Ident(name.clone())],
        "vis" | "item" => Vec::new(),
        "block" => vec![TokenTree::Group(Group::new(Delimiter::Brace, TokenStream::new()))],
        "lifetime" => {
            vec![TokenTree::Punct(Punct::new('\'', Spacing::Joint)), ident(name.span())]
        }
        _ => vec![ident(name.span())],
    }
}
