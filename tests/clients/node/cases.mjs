// What every client asks, and how it says what it got.
import { z } from "zod";

export const CITY = "What is the weather in Paris?";
export const COUNT = "Count to four.";
export const PERSON = "Who wrote the first program?";
export const EDIT = "Make hello.py say good-bye.";
export const BEFORE = 'print("hello")\n';
export const RESULT = "18 degrees";
export const Person = z.object({ name: z.string(), age: z.number().int() });
export const City = z.object({ city: z.string() });
export const MODEL = process.env.MODEL;
export const URL = process.env.BASE_URL;

/** Prints what a case got, as a line of JSON. */
export const say = (which, got) => console.log(JSON.stringify({ [which]: got }));
