// Brings pages up to date: when something happens the same address is fetched again, and the regions that are marked
// data-live are exchanged. Without this script every page still reads and every form still works.
"use strict";
(() => {
  const LEAST = 1000, OLD = 3000, AT_REST = 15000, PATIENCE = 30000;

  // --- Times: those marked data-ago tick, those marked data-clock show the reader's own zone, and say which.
  const span = (seconds) => {
    if (seconds < 100) return seconds + " s";
    if (seconds < 5400) return Math.floor((seconds + 30) / 60) + " min";
    if (seconds < 172800) return Math.floor((seconds + 1800) / 3600) + " h";
    return Math.floor((seconds + 43200) / 86400) + " d";
  };
  const relative = (ms) => {
    const seconds = Math.trunc(ms / 1000);
    if (seconds === 0) return "now";
    return seconds > 0 ? "in " + span(seconds) : span(-seconds) + " ago";
  };
  const clock = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, timeZoneName: "short" });
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const tick = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-ago]")) say(time, relative(Date.parse(time.dateTime) - now));
  };
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[data-clock]")) say(time, clock.format(new Date(time.dateTime)));
  };

  // --- Regions that are live.
  const regions = () => document.querySelectorAll("[data-live]");
  const isInUse = (region) => {
    const active = document.activeElement;
    if (active && region.contains(active) && active.matches("input, select, textarea")) return true;
    const chosen = document.getSelection();
    return !!chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode);
  };
  const CONTROLS = "a, button, summary, [tabindex]", INSTANT = /\d{4}-\d\d-\d\dT[^&]+/g;
  // What a control is for: where it leads, whatever the time is by now, or what its form does.
  const purpose = (one) => one.tagName + (one.getAttribute("href")?.replace(INSTANT, "") ?? one.form?.getAttribute("action") ?? one.closest("[id]").id);
  const keep = (region, fresh) => {
    // What was opened stays open, and what had the focus keeps it.
    region.querySelectorAll("details[open][id]").forEach((details) => {
      const same = fresh.querySelector("#" + CSS.escape(details.id));
      if (same) same.open = true;
    });
    const active = document.activeElement;
    if (!active || !region.contains(active)) return () => {};
    const alike = (root) => [...root.querySelectorAll(CONTROLS)].filter((one) => purpose(one) === purpose(active));
    const place = alike(region).indexOf(active);
    return () => {
      const found = alike(fresh), same = found[Math.min(place, found.length - 1)];
      // No other takes the place of one that is gone: whoever presses a key means the one they came to.
      if (!same) fresh.tabIndex = -1;
      (same ?? fresh).focus({ preventScroll: true });
    };
  };
  const source = new Map();
  const exchange = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const region of regions()) {
      const fresh = page.getElementById(region.id);
      if (!fresh || isInUse(region) || source.get(region.id) === fresh.outerHTML) continue;
      source.set(region.id, fresh.outerHTML);
      localise(fresh);
      const refocus = keep(region, fresh);
      region.replaceWith(fresh);
      refocus();
    }
    tick();
  };

  // --- Whether what is shown is what there is: the stream has to be open, and the last exchange must have succeeded.
  const pulse = document.querySelector("[data-pulse]");
  const old = document.querySelector("[data-old]");
  let isOpen = false, isBehind = false, oldSince = 0;
  const beat = () => {
    if (!pulse) return;
    oldSince = isOpen && !isBehind ? 0 : oldSince || Date.now();
    const isOld = oldSince > 0 && Date.now() - oldSince >= OLD;
    old.hidden = !isOld;
    document.body.classList.toggle("old", isOld);
    if (isOld) say(old, "No answer since " + clock.format(new Date(oldSince)) + ": what you see is old.");
    else if (oldSince) setTimeout(beat, OLD);
    pulse.hidden = false;
    pulse.className = isOpen && !isBehind ? "pulse on" : "pulse off";
    say(pulse, !isOpen ? "reconnecting" : isBehind ? "not up to date" : "live");
  };

  let last = 0, timer = 0, isFetching = false;
  const refresh = async () => {
    timer = 0;
    if (document.hidden) return;
    if (isFetching) { soon(); return; }
    isFetching = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Punctual-Live": "1" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
      });
      // Whoever is logged out sees that.
      if (answer.redirected && new URL(answer.url).pathname !== location.pathname) { location.reload(); return; }
      if (answer.ok) exchange(await answer.text());
      isBehind = !answer.ok;
    } catch { isBehind = true; }
    isFetching = false;
    beat();
  };
  const soon = () => {
    if (!document.hidden && !timer) timer = setTimeout(refresh, Math.max(50, last + LEAST - Date.now()));
  };

  // --- The stream.
  let stream = null;
  const listen = () => {
    if (stream || !regions().length) return;
    stream = new EventSource("/live");
    stream.onopen = () => {
      isOpen = true;
      beat();
      // What happened while nobody listened was not heard.
      if (isBehind) soon();
    };
    stream.onerror = () => { isOpen = false; isBehind = true; beat(); };
    stream.addEventListener("changed", soon);
  };
  const rest = () => { if (stream) { stream.close(); stream = null; } };

  // --- The preview of a schedule that is being written.
  const form = document.querySelector("form[data-preview]");
  if (form) {
    let typing = 0, asking = new AbortController();
    const preview = async () => {
      asking.abort();
      asking = new AbortController();
      const { signal } = asking, fields = new FormData(form);
      // These may be long, and it does not fire by them.
      for (const name of ["payload", "description"]) fields.delete(name);
      try {
        const answer = await fetch(form.dataset.preview, { method: "POST", body: new URLSearchParams(fields), signal });
        const text = await answer.text();
        if (signal.aborted) return;
        const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("preview");
        if (fresh) { localise(fresh); document.getElementById("preview").replaceWith(fresh); tick(); }
      } catch {
        // Not one that a later change has made pointless.
        if (!signal.aborted) { clearTimeout(typing); typing = setTimeout(preview, 1000); }
      }
    };
    form.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(preview, 250); });
  }

  // --- Begin.
  for (const region of regions()) source.set(region.id, region.outerHTML);
  localise(document);
  tick();
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
  if (regions().length) {
    listen();
    setInterval(soon, AT_REST);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { rest(); return; }
      listen();
      soon();
    });
    addEventListener("pagehide", rest);
  }
})();
