// Reads a page that changes by itself again, every five seconds. It does nothing while somebody works with the page.
"use strict";
(() => {
  const PAUSE_MS = 5000;
  const main = document.querySelector("main[data-live]");
  if (!main) return;

  // The message about an action is of the page that follows it.
  const place = new URL(location.href);
  place.searchParams.delete("did");

  const label = document.createElement("label");
  const box = document.createElement("input");
  label.className = "live";
  box.type = "checkbox";
  box.checked = sessionStorage.getItem("refresh") !== "off";
  box.addEventListener("change", () => sessionStorage.setItem("refresh", box.checked ? "on" : "off"));
  label.append(box, " Refresh every 5 seconds");
  document.querySelector("nav").append(label);

  const isInUse = () => {
    const focused = document.activeElement;
    return document.hidden || (focused !== main && main.contains(focused)) ||
      main.querySelector("details[open]") !== null || String(getSelection()) !== "";
  };

  const refresh = async () => {
    if (box.checked && !isInUse()) {
      try {
        const answer = await fetch(place, { headers: { Accept: "text/html" } });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const content = page.querySelector("main");
          // Somebody may have begun to work with the page in the meantime.
          if (content && !isInUse()) main.replaceChildren(...content.childNodes);
        }
      } catch {
        // The server is away: the page stays as it is, and is read again later.
      }
    }
    setTimeout(refresh, PAUSE_MS);
  };
  setTimeout(refresh, PAUSE_MS);
})();
