"""Asks a server, through OpenAI's own Python library, for what TestClients
wants to see, and prints what it got as JSON."""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = sys.argv[2]
result = {"models": [m.id for m in client.models.list()]}

ask = {"model": model, "prompt": "Hi", "max_tokens": 8}
result["text"] = client.completions.create(**ask).choices[0].text

result["stream"] = []
for event in client.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
    result["stream"] += [choice.text for choice in event.choices]
    if event.usage:
        result["usage"] = [event.usage.prompt_tokens, event.usage.completion_tokens, event.usage.total_tokens]

talk = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 8}
chat = client.chat.completions.create(**talk)
result["chat"], result["chat_finish"] = chat.choices[0].message.content, chat.choices[0].finish_reason

result["chat_stream"] = ""
for event in client.chat.completions.create(**talk, stream=True):
    result["chat_stream"] += event.choices[0].delta.content

try:
    client.completions.create(model=model, prompt="Hi", temperature=0.5)
except openai.BadRequestError as error:
    result["refused"] = [error.status_code, error.code, error.param]
json.dump(result, sys.stdout)
