//! What stands around every page: the head, the navigation, the notice.

use maud::{DOCTYPE, Markup, html};
use punctual_domain::key::Role;

use super::assets::{ICON, SCRIPT, STYLE};
use super::notice::Notice;
use super::visitor::{Visitor, said};
use crate::http::auth::Caller;
use crate::http::problem::Problem;

/// Which part of the dashboard a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Overview,
    Schedules,
    Tasks,
    Topics,
    Outbox,
    Nodes,
    Audit,
    Keys,
}

impl Place {
    const ALL: [Self; 8] = [
        Self::Overview,
        Self::Schedules,
        Self::Tasks,
        Self::Topics,
        Self::Outbox,
        Self::Nodes,
        Self::Audit,
        Self::Keys,
    ];

    /// Its name, its address, and who may see it.
    fn parts(self) -> (&'static str, &'static str, Role) {
        match self {
            Self::Overview => ("Overview", "/", Role::Read),
            Self::Schedules => ("Schedules", "/schedules", Role::Read),
            Self::Tasks => ("Tasks", "/tasks", Role::Read),
            Self::Topics => ("Topics", "/topics", Role::Read),
            Self::Outbox => ("Outbox", "/outbox", Role::Read),
            Self::Nodes => ("Nodes", "/nodes", Role::Read),
            Self::Audit => ("Audit", "/audit", Role::Admin),
            Self::Keys => ("Keys", "/keys", Role::Admin),
        }
    }
}

/// A whole page.
pub(crate) fn page(visitor: &Visitor, place: Place, title: &str, notice: Option<&Notice>, body: &Markup) -> Markup {
    let is_paused = visitor.api.state.is_paused();
    document(
        title,
        &html! {
            (bar(Some(place), &|role| visitor.may(role), &whoami(visitor)))
            main #main tabindex="-1" {
                p.stale data-old role="alert" hidden {}
                @if is_paused {
                    p.notice.waiting role="status" {
                        "This node is paused: it neither fires schedules nor runs tasks."
                    }
                }
                @if let Some(notice) = notice { (shown(notice)) }
                (body)
            }
        },
    )
}

/// A page without navigation, for those who are nobody yet.
pub(crate) fn alone(title: &str, body: &Markup) -> Markup {
    document(title, &html! { main #main.alone tabindex="-1" { (body) } })
}

/// A problem, as a page.
pub(crate) fn problem(problem: &Problem) -> Markup {
    let status = problem.code.status().as_u16();
    let title = problem.code.title();
    document(
        title,
        &html! {
            (bar(None, &|role| role == Role::Read, &html! {}))
            main #main tabindex="-1" {
                h1 { (title) }
                p { (said(problem)) }
                p.hint { "Answer " (status) ", code " code { (problem.code.name()) } ". " a href="/" { "Back to the overview" } "." }
            }
        },
    )
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · Punctual" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="stylesheet" href=(STYLE.path);
                link rel="icon" type="image/svg+xml" href=(ICON.path);
                script src=(SCRIPT.path) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (body)
            }
        }
    }
}

fn bar(here: Option<Place>, may: &dyn Fn(Role) -> bool, whoami: &Markup) -> Markup {
    html! {
        header.bar {
            a.brand href="/" { img src=(ICON.path) alt="" width="22" height="22"; span { "Punctual" } }
            nav aria-label="Pages" {
                @for place in Place::ALL {
                    @let (name, path, role) = place.parts();
                    @if may(role) {
                        a href=(path) aria-current=[(here == Some(place)).then_some("page")] { (name) }
                    }
                }
            }
            div.who { (whoami) }
        }
    }
}

fn whoami(visitor: &Visitor) -> Markup {
    html! {
        span.pulse data-pulse hidden title="Whether this page hears what happens" { "connecting" }
        @match &visitor.caller {
            Caller::Local => { span.hint title="No API keys exist: everybody on this machine may do everything" { "no login needed" } }
            Caller::Key(key) => {
                span.hint { (key.name) " · " (key.role.as_str()) }
                form method="post" action="/logout" { button.quiet type="submit" { "Log out" } }
            }
        }
    }
}

fn shown(notice: &Notice) -> Markup {
    html! {
        @match notice {
            Notice::Done(text) => { p.notice.done role="status" { (text) } }
            Notice::Refused(text) => { p.notice.refused role="alert" { (text) } }
        }
    }
}
