"""The official Python package, driven by python_test.go.

Usage: python client.py URL sync|async

Each line of standard input is an order, a JSON object with "do"; each gets
one line of JSON back, {"first":true} aside, which a stream's first event
gives. The first line, {"openai":…}, says that it is ready. It ends with its
input. What is right isn't decided here.
"""

import asyncio
import inspect
import json
import sys

import openai


def say(value):
    print(json.dumps(value), flush=True)


def arguments(method, order):
    """The body as a user of the package would write it: what a method has no
    name for goes into extra_body."""
    named = inspect.signature(method).parameters
    body = order["body"]
    extra = {k: v for k, v in body.items() if k not in named}
    return {
        **{k: v for k, v in body.items() if k in named},
        "extra_body": extra or None,
        "extra_headers": {"X-Request-Id": order["id"]},
    }


class Answer:
    """What came, as the package gives it."""

    def __init__(self, order):
        self.order = order
        self.stream = order["body"].get("stream") is True
        self.it = {"text": "", "finishReason": "", "role": "", "promptTokens": 0, "answerTokens": 0, "events": 0}

    def take(self, part):
        for choice in part.choices:
            if not self.order["chat"]:
                self.it["text"] += choice.text or ""
            else:
                message = choice.delta if self.stream else choice.message
                self.it["text"] += message.content or ""
                self.it["role"] += message.role or ""
            self.it["finishReason"] += choice.finish_reason or ""
            if self.stream:
                self.it["events"] += 1
                if self.it["events"] == 1 and self.order["first"]:
                    say({"first": True})
        if part.usage:
            self.it["promptTokens"] += part.usage.prompt_tokens
            self.it["answerTokens"] += part.usage.completion_tokens
        return self


def failure(e):
    value = {"class": type(e).__name__, "message": str(e), "status": getattr(e, "status_code", 0)}
    if isinstance(e, openai.APIError):
        value.update(type=e.type, code=e.code, param=e.param)
    return {"failure": value}


class Sync:
    def __init__(self, url):
        self.client = openai.OpenAI(base_url=url, api_key="none")

    def method(self, order):
        return (self.client.chat.completions if order["chat"] else self.client.completions).create

    def ask(self, order):
        method = self.method(order)
        answer = Answer(order)
        came = method(**arguments(method, order))
        if not answer.stream:
            return {"answer": answer.take(came).it, "requestID": came._request_id}
        for part in came:
            answer.take(part)
        return {"answer": answer.it}

    def leave(self, order):
        method = self.method(order)
        with method(**arguments(method, order)) as stream:
            for _ in stream:
                break
        return {}

    def helper(self, order):
        kinds = []
        with self.client.chat.completions.stream(**order["body"]) as stream:
            for event in stream:
                kinds.append(event.type)
            whole = stream.get_final_completion()
        return {"answer": {"text": whole.choices[0].message.content, "finishReason": whole.choices[0].finish_reason}, "kinds": kinds}

    def models(self, order):
        listed = self.client.models.list()
        return {"models": [m.id for m in listed], "model": self.client.models.retrieve(order["model"]).id}

    def parameters(self, order):
        completions = self.client.chat.completions if order["chat"] else self.client.completions
        return {"parameters": list(inspect.signature(completions.create).parameters)}


class Async:
    def __init__(self, url):
        self.client = openai.AsyncOpenAI(base_url=url, api_key="none")
        self.loop = asyncio.new_event_loop()

    method = Sync.method
    parameters = Sync.parameters

    def ask(self, order):
        return self.loop.run_until_complete(self.answer(order))

    async def answer(self, order):
        method = self.method(order)
        answer = Answer(order)
        came = await method(**arguments(method, order))
        if not answer.stream:
            return {"answer": answer.take(came).it, "requestID": came._request_id}
        async for part in came:
            answer.take(part)
        return {"answer": answer.it}

    def leave(self, order):
        """The task is cancelled, as by a user's asyncio.timeout."""

        async def leave():
            arrived = asyncio.Event()

            async def read():
                method = self.method(order)
                async with await method(**arguments(method, order)) as stream:
                    async for _ in stream:
                        arrived.set()

            task = asyncio.create_task(read())
            seen = asyncio.create_task(arrived.wait())
            await asyncio.wait([task, seen], return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            seen.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass

        self.loop.run_until_complete(leave())
        return {}

    def together(self, order):
        async def all():
            return await asyncio.gather(*(self.answer({**order, **one}) for one in order["all"]))

        return {"answers": [a["answer"] for a in self.loop.run_until_complete(all())]}

    def helper(self, order):
        async def read():
            kinds = []
            async with self.client.chat.completions.stream(**order["body"]) as stream:
                async for event in stream:
                    kinds.append(event.type)
                whole = await stream.get_final_completion()
            return {"answer": {"text": whole.choices[0].message.content, "finishReason": whole.choices[0].finish_reason}, "kinds": kinds}

        return self.loop.run_until_complete(read())

    def models(self, order):
        async def read():
            listed = [m.id async for m in self.client.models.list()]
            return {"models": listed, "model": (await self.client.models.retrieve(order["model"])).id}

        return self.loop.run_until_complete(read())


def main():
    url, style = sys.argv[1:]
    client = {"sync": Sync, "async": Async}[style](url)
    say({"openai": openai.__version__, "python": sys.version.split()[0]})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(getattr(client, order["do"])(order))
        except Exception as e:  # it is python_test.go that looks at it
            say(failure(e))


main()
