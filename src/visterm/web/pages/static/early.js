// Keeps the keys that are pressed before the page's scripts listen, and plays them once they do.
"use strict";
(() => {
  const FIELD = "input:not([type=checkbox], [type=file]), textarea, select";
  const early = [];

  const keep = (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || !/^(.|Arrow.*|Enter|Escape)$/u.test(key)) return;
    // What the browser does at once by itself, it does, unless other keys come before
    if (!early.length && (target.matches(FIELD) || key === " " || key === "Enter" && target !== document.body)) return;
    early.push(event);
    event.preventDefault();
    event.stopImmediatePropagation();
  };

  const play = ({ key, code, shiftKey, repeat }) => {
    const target = document.activeElement || document.body;
    const options = { key, code, shiftKey, repeat, bubbles: true, cancelable: true };
    const free = target.dispatchEvent(new KeyboardEvent("keydown", options));
    target.dispatchEvent(new KeyboardEvent("keyup", options));
    if (!free) return;
    // What the browser does with keys, but not with those that a script plays
    if (!target.matches(FIELD)) key === "Enter" && target !== document.body && target.click();
    else if (key === "Enter") target.form?.requestSubmit();
    else if (key.length === 1) document.execCommand("insertText", false, key);
  };

  addEventListener("keydown", keep, true);
  document.addEventListener("DOMContentLoaded", () => { // after all scripts that are deferred
    removeEventListener("keydown", keep, true);
    early.forEach(play);
    document.documentElement.dataset.ready = "";
  });
})();
