// The theme searches in a worker, which browsers do not start from a file. There, a hidden frame runs the worker's script instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const ask = inside.postMessage.bind(inside);
      const loaded = new Promise((done) => {
        frame.addEventListener("load", done);
      });
      this.postMessage = (data) => loaded.then(() => ask(data, "*"));
      inside.document.write(`<script src="${url}"></` + "script>");
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.document.close();
    }
  };
}
