// Keeps a page up to date: it reads the page again every five seconds, or follows the events of a run.
"use strict";
(() => {
  const PAUSE_MS = 5000;
  const MAX_LINES = 1000;
  const MAX_STREAMS = 200;
  const CLASSES = { running: "running", done: "ok", failed: "bad" };
  const main = document.querySelector("main[data-live], main[data-run]");
  if (!main) return;

  // The message about an action is of the page that follows it.
  const place = new URL(location.href);
  place.searchParams.delete("did");

  const isInUse = () => {
    const focused = document.activeElement;
    const isFilled = (field) => field.value !== field.defaultValue || Boolean(field.checked) !== Boolean(field.defaultChecked);
    return document.hidden || (focused !== main && main.contains(focused)) ||
      main.querySelector("details[open]") !== null || String(getSelection()) !== "" ||
      [...main.querySelectorAll("textarea, input")].some(isFilled);
  };

  // Puts the content of the page as it is now in place of the old one. Nothing happens while somebody works with the page.
  const read = async () => {
    if (isInUse()) return false;
    try {
      const answer = await fetch(place, { headers: { Accept: "text/html" } });
      if (!answer.ok) return false;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const content = page.querySelector("main");
      // Somebody may have begun to work with the page in the meantime.
      if (!content || isInUse()) return false;
      main.replaceChildren(...content.childNodes);
      return true;
    } catch {
      // The server is away: the page stays as it is.
      return false;
    }
  };

  const inMenu = (name) => {
    const element = document.createElement(name);
    element.className = "live";
    document.querySelector("nav").append(element);
    return element;
  };

  const refresh = () => {
    const label = inMenu("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = sessionStorage.getItem("refresh") !== "off";
    box.addEventListener("change", () => sessionStorage.setItem("refresh", box.checked ? "on" : "off"));
    label.append(box, " Refresh every 5 seconds");
    const again = async () => {
      if (box.checked) await read();
      setTimeout(again, PAUSE_MS);
    };
    setTimeout(again, PAUSE_MS);
  };

  const bytes = (number) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (number >= 1024 && unit + 1 < units.length) {
      number /= 1024;
      unit += 1;
    }
    return `${unit === 0 ? number : number.toFixed(1)} ${units[unit]}`;
  };

  const follow = (run) => {
    const told = inMenu("span");
    told.setAttribute("role", "status");
    const log = document.getElementById("log");
    const badge = document.querySelector("#state .badge");
    const count = (number) => (number === null ? "" : number.toLocaleString("en-US"));
    let isFirst = true;

    const begins = () => {
      if (badge.textContent !== "queued") return;
      badge.textContent = "running";
      badge.className = "badge running";
    };
    const add = (kind, from, message) => {
      // The first event of the log is its first line, which the page has.
      if (isFirst) log.replaceChildren();
      isFirst = false;
      const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      const line = document.createElement("li");
      const origin = document.createElement("span");
      line.className = kind;
      origin.className = "quiet";
      origin.textContent = from;
      line.append(origin, ` ${message}`);
      log.append(line);
      while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    };
    const show = (streams) => {
      const table = document.getElementById("progress-table").content.cloneNode(true);
      const body = table.querySelector("tbody");
      const template = body.firstElementChild;
      const rows = streams.slice(0, MAX_STREAMS).map((stream) => {
        const row = template.cloneNode(true);
        const [name, state, moved, size, estimated] = row.children;
        const word = state.querySelector(".badge");
        name.textContent = stream.name;
        word.textContent = stream.state;
        word.className = `badge ${CLASSES[stream.state] ?? ""}`;
        moved.textContent = count(stream.rows);
        size.textContent = bytes(stream.bytes);
        estimated.textContent = count(stream.estimated_rows);
        return row;
      });
      body.replaceChildren(...rows);
      document.getElementById("progress").replaceChildren(table);
    };

    const events = new EventSource(`/v1/runs/${run}/events`);
    events.onopen = () => { told.textContent = "Live"; };
    events.onerror = () => {
      const isClosed = events.readyState === EventSource.CLOSED;
      told.textContent = isClosed ? "Not connected: reload the page" : "Connecting again";
    };
    events.addEventListener("log", (event) => {
      const line = JSON.parse(event.data);
      begins();
      add(line.level, line.stream ? `${line.from} ${line.stream}` : line.from, line.message);
    });
    events.addEventListener("lost", (event) => {
      add("warn", "", `${count(JSON.parse(event.data).lines)} lines are not kept any more`);
    });
    events.addEventListener("progress", (event) => {
      begins();
      show(JSON.parse(event.data).streams);
    });
    events.addEventListener("end", async () => {
      events.close();
      told.textContent = (await read()) ? "The run has ended" : "The run has ended: reload the page";
    });
  };

  if (main.dataset.run) follow(main.dataset.run);
  else refresh();
})();
