// Light or dark, before the first paint: the system's choice unless somebody chose here.
"use strict";
(() => {
  const KEY = "dither.theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem(KEY); } catch { return null; } };

  const apply = () => {
    root.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
    label();
  };
  const label = () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "☾" : "☀";
    button.setAttribute("aria-label", `Use the ${other} colours`);
    button.title = `Use the ${other} colours`;
  };

  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    label();
    document.getElementById("theme").addEventListener("click", () => {
      try { localStorage.setItem(KEY, root.dataset.theme === "dark" ? "light" : "dark"); } catch { /* not remembered */ }
      apply();
    });
  });
  apply();
})();
